// Register tiles of the CPU kernels: selection divides the work by them, the kernels are compiled for them.
#pragma once

#include "csrc/common/cpu_isa.hpp"
#include "csrc/common/dtype.hpp"

namespace pmpp::matmul {

// Elements of the result that a micro-kernel keeps in registers.
struct MicroTile {
  int rows, cols;
};

constexpr int vector_bytes(CpuIsa isa) { return isa == CpuIsa::kAvx512 ? 64 : isa == CpuIsa::kAvx2 ? 32 : 16; }

// Bytes of one number in a packed panel: 16-bit floats become float32; small integers stand in pairs of 16 bits, two
// steps of k together.
constexpr int packed_bytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
    case DType::kInt64:
      return 8;
    default:
      return 4;
  }
}

// Steps of k in one packed number.
constexpr int packed_steps(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kInt8 || dtype == DType::kInt16 ? 2 : 1;
}

// 16 registers hold 6 x 2 accumulators, two of b and two of a; 32 hold 9 x 3, three of b and one of a. On a Xeon of the
// third generation (Ice Lake), where 2.8 GHz make 179 GFLOP/s of float32, the micro-kernel alone runs at 173 GFLOP/s on
// panels of 384 steps, and at 156 with 14 x 2, which loads 16 registers for 28 multiply-adds instead of 12 for 27. A
// 64-bit product of integers takes two accumulators where the instruction set multiplies 32 bits at most. A complex
// number is two rows of a by two columns of b.
constexpr MicroTile micro_tile(CpuIsa isa, DType dtype) {
  const int vectors = isa == CpuIsa::kAvx512 ? 3 : dtype == DType::kInt64 && isa == CpuIsa::kAvx2 ? 1 : 2;
  const int parts = is_complex(dtype) ? 2 : 1;
  return {(isa == CpuIsa::kAvx512 ? 9 : 6) / parts, vectors * vector_bytes(isa) / packed_bytes(dtype) / parts};
}

}  // namespace pmpp::matmul
