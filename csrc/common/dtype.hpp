// The element types that tiled_matmul multiplies, independent of any framework.
#pragma once

#include <cstdint>

namespace pmpp {

enum class DType : std::uint8_t {
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
};

inline constexpr DType kAllDTypes[11] = {
    DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kComplex64, DType::kComplex128,
    DType::kUInt8,   DType::kInt8,     DType::kInt16,   DType::kInt32,   DType::kInt64,
};

constexpr bool is_complex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

// Bytes of one element.
constexpr int element_size(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat64:
    case DType::kComplex64:
    case DType::kInt64:
      return 8;
    case DType::kComplex128:
      return 16;
  }
  return 0;
}

// Bytes of the type that its products are summed in: AccumulatorOf in numeric.hpp.
constexpr int accumulator_size(DType dtype) { return element_size(dtype) < 4 ? 4 : element_size(dtype); }

// The name that PyTorch gives the type in Python, without the prefix.
constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kComplex64:
      return "complex64";
    case DType::kComplex128:
      return "complex128";
    case DType::kUInt8:
      return "uint8";
    case DType::kInt8:
      return "int8";
    case DType::kInt16:
      return "int16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
  }
  return "unknown";
}

}  // namespace pmpp
