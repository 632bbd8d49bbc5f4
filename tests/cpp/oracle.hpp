// What the kernel tests share: an independent reading and writing of every dtype, and strided host buffers that
// notice a write outside their view. Nothing here uses csrc/common/numeric.hpp, so that a mistake there cannot hide
// behind the same mistake in the expectation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "csrc/common/dtype.hpp"

namespace pmpp::test {

constexpr bool is_integer(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 ||
         dtype == DType::kInt64;
}

constexpr bool is_16_bit_float(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Bits of significand, the hidden one included.
constexpr int precision_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 11;
    case DType::kBFloat16:
      return 8;
    case DType::kFloat32:
    case DType::kComplex64:
      return 24;
    default:
      return 53;
  }
}

// The format of a 16-bit float: one sign bit, then exponent, then fraction.
struct SmallFloat {
  int exponent_bits;
  int fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  unsigned infinity() const { return ((1u << exponent_bits) - 1) << fraction_bits; }
};
inline constexpr SmallFloat kHalf{5, 10};
inline constexpr SmallFloat kBrain{8, 7};

inline double decode(std::uint16_t bits, SmallFloat format) {
  const unsigned magnitude = bits & 0x7fffu;
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (magnitude > format.infinity()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (magnitude == format.infinity()) {
    return sign * std::numeric_limits<double>::infinity();
  }
  const int exponent = static_cast<int>(magnitude >> format.fraction_bits);
  const unsigned fraction = magnitude & ((1u << format.fraction_bits) - 1);
  if (exponent == 0) {
    return sign * std::ldexp(static_cast<double>(fraction), 1 - format.bias() - format.fraction_bits);
  }
  return sign * std::ldexp(static_cast<double>(fraction + (1u << format.fraction_bits)),
                           exponent - format.bias() - format.fraction_bits);
}

// Rounds once, to nearest even, from the exact value.
inline std::uint16_t encode(long double value, SmallFloat format) {
  const unsigned sign = std::signbit(value) ? 0x8000u : 0u;
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(format.infinity() + 1);
  }
  const long double magnitude = std::fabs(value);
  if (magnitude == 0) {
    return static_cast<std::uint16_t>(sign);
  }
  if (std::isinf(value) || std::ilogb(magnitude) > format.bias()) {
    return static_cast<std::uint16_t>(sign | format.infinity());
  }
  const int smallest = 1 - format.bias();
  const int exponent = std::max(std::ilogb(magnitude), smallest);
  const auto steps = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent)));
  // Subnormals have steps < 2^fraction_bits and land in exponent field 0; a carry out of the fraction moves into
  // the exponent field by itself, up to infinity.
  const unsigned bits = (static_cast<unsigned>(exponent - smallest) << format.fraction_bits) + steps;
  return static_cast<std::uint16_t>(sign | std::min(bits, format.infinity()));
}

// One element of any dtype. re and im for floating and complex dtypes, integer for the rest.
struct Value {
  long double re = 0;
  long double im = 0;
  std::int64_t integer = 0;
};

template <class T>
T peek(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

template <class T>
void poke(std::byte* address, T value) {
  std::memcpy(address, &value, sizeof(T));
}

inline Value load(DType dtype, const std::byte* address) {
  switch (dtype) {
    case DType::kFloat16:
      return {decode(peek<std::uint16_t>(address), kHalf), 0, 0};
    case DType::kBFloat16:
      return {decode(peek<std::uint16_t>(address), kBrain), 0, 0};
    case DType::kFloat32:
      return {peek<float>(address), 0, 0};
    case DType::kFloat64:
      return {peek<double>(address), 0, 0};
    case DType::kComplex64:
      return {peek<float>(address), peek<float>(address + 4), 0};
    case DType::kComplex128:
      return {peek<double>(address), peek<double>(address + 8), 0};
    case DType::kUInt8:
      return {0, 0, peek<std::uint8_t>(address)};
    case DType::kInt8:
      return {0, 0, peek<std::int8_t>(address)};
    case DType::kInt16:
      return {0, 0, peek<std::int16_t>(address)};
    case DType::kInt32:
      return {0, 0, peek<std::int32_t>(address)};
    case DType::kInt64:
      return {0, 0, peek<std::int64_t>(address)};
  }
  return {};
}

// Floats are rounded once, to nearest even; integers keep their low bits.
inline void store(DType dtype, std::byte* address, const Value& value) {
  switch (dtype) {
    case DType::kFloat16:
      return poke(address, encode(value.re, kHalf));
    case DType::kBFloat16:
      return poke(address, encode(value.re, kBrain));
    case DType::kFloat32:
      return poke(address, static_cast<float>(value.re));
    case DType::kFloat64:
      return poke(address, static_cast<double>(value.re));
    case DType::kComplex64:
      poke(address, static_cast<float>(value.re));
      return poke(address + 4, static_cast<float>(value.im));
    case DType::kComplex128:
      poke(address, static_cast<double>(value.re));
      return poke(address + 8, static_cast<double>(value.im));
    case DType::kUInt8:
      return poke(address, static_cast<std::uint8_t>(value.integer));
    case DType::kInt8:
      return poke(address, static_cast<std::int8_t>(value.integer));
    case DType::kInt16:
      return poke(address, static_cast<std::int16_t>(value.integer));
    case DType::kInt32:
      return poke(address, static_cast<std::int32_t>(value.integer));
    case DType::kInt64:
      return poke(address, value.integer);
  }
}

inline Value rounded(DType dtype, const Value& value) {
  std::byte element[16];
  store(dtype, element, value);
  return load(dtype, element);
}

inline bool same(long double x, long double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

inline bool same(const Value& x, const Value& y) {
  return same(x.re, y.re) && same(x.im, y.im) && x.integer == y.integer;
}

inline std::string to_text(const Value& value) {
  return "(re " + std::to_string(value.re) + ", im " + std::to_string(value.im) + ", integer " +
         std::to_string(value.integer) + ")";
}

// Shape and strides of a batch of matrices, in elements.
struct Strided {
  std::int64_t rows, cols, batch;
  std::int64_t row_stride, col_stride, batch_stride;

  bool empty() const { return rows == 0 || cols == 0 || batch == 0; }
  std::int64_t at(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return b * batch_stride + i * row_stride + j * col_stride;
  }
  // Smallest and largest element index relative to element [0][0][0].
  std::int64_t low() const {
    return std::min<std::int64_t>(0, (rows - 1) * row_stride) + std::min<std::int64_t>(0, (cols - 1) * col_stride) +
           std::min<std::int64_t>(0, (batch - 1) * batch_stride);
  }
  std::int64_t high() const {
    return std::max<std::int64_t>(0, (rows - 1) * row_stride) + std::max<std::int64_t>(0, (cols - 1) * col_stride) +
           std::max<std::int64_t>(0, (batch - 1) * batch_stride);
  }
};

enum class Layout : std::uint8_t {
  kRowMajor,
  kColumnMajor,
  kSliced,             // row-major, pitch above the width, every second column
  kSlicedColumnMajor,  // the same of a transpose
  kReversed,           // both strides negative
  kSameRow,            // row stride 0
  kSameColumn,         // column stride 0
  kSameElement,        // both strides 0
};
enum class BatchLayout : std::uint8_t { kPacked, kApart, kReversed, kShared };

inline Strided strided(Layout layout, std::int64_t rows, std::int64_t cols, std::int64_t batch = 1,
                       BatchLayout batches = BatchLayout::kPacked) {
  Strided view{rows, cols, batch, cols, 1, 0};
  switch (layout) {
    case Layout::kRowMajor:
      break;
    case Layout::kColumnMajor:
      view.row_stride = 1, view.col_stride = rows;
      break;
    case Layout::kSliced:
      view.row_stride = 2 * cols + 3, view.col_stride = 2;
      break;
    case Layout::kSlicedColumnMajor:
      view.row_stride = 2, view.col_stride = 2 * rows + 5;
      break;
    case Layout::kReversed:
      view.row_stride = -cols, view.col_stride = -1;
      break;
    case Layout::kSameRow:
      view.row_stride = 0;
      break;
    case Layout::kSameColumn:
      view.row_stride = 1, view.col_stride = 0;
      break;
    case Layout::kSameElement:
      view.row_stride = 0, view.col_stride = 0;
      break;
  }
  const Strided one{rows, cols, 1, view.row_stride, view.col_stride, 0};
  const std::int64_t extent = one.empty() ? 0 : one.high() - one.low() + 1;
  switch (batches) {
    case BatchLayout::kPacked:
      view.batch_stride = extent;
      break;
    case BatchLayout::kApart:
      view.batch_stride = extent + 7;
      break;
    case BatchLayout::kReversed:
      view.batch_stride = -extent;
      break;
    case BatchLayout::kShared:
      view.batch_stride = 0;
      break;
  }
  return view;
}

// Host memory of exactly the extent of a view, plus `front` and `back` elements around it. Elements outside the view
// hold `outside`, elements inside hold `inside` until written; 0xff is a NaN in every floating dtype.
struct Buffer {
  static constexpr unsigned char kPoison = 0xff;
  static constexpr unsigned char kGuard = 0xa5;

  int element_size = 1;
  Strided view{};
  std::int64_t origin = 0;  // index of element [0][0][0] in the storage
  std::vector<std::byte> storage;

  Buffer() = default;
  Buffer(int size, const Strided& shape, int guard, unsigned char outside, unsigned char inside = kPoison)
      : Buffer(size, shape, guard, guard, outside, inside) {}
  Buffer(int size, const Strided& shape, std::int64_t front, std::int64_t back, unsigned char outside,
         unsigned char inside)
      : element_size(size), view(shape) {
    const std::int64_t extent = view.empty() ? 0 : view.high() - view.low() + 1;
    origin = front - (view.empty() ? 0 : view.low());
    storage.assign(static_cast<std::size_t>((extent + front + back) * size), std::byte{outside});
    for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
      std::memset(address(b, i, j), inside, static_cast<std::size_t>(element_size));
    });
  }

  std::int64_t offset_bytes() const { return origin * element_size; }
  std::byte* address(std::int64_t b, std::int64_t i, std::int64_t j) {
    return storage.data() + (origin + view.at(b, i, j)) * element_size;
  }
  const std::byte* address(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return storage.data() + (origin + view.at(b, i, j)) * element_size;
  }
  void* data() { return storage.empty() ? nullptr : storage.data() + offset_bytes(); }
  const void* data() const { return storage.empty() ? nullptr : storage.data() + offset_bytes(); }

  template <class F>
  void for_each(F&& visit) const {
    for (std::int64_t b = 0; b < view.batch; ++b) {
      for (std::int64_t i = 0; i < view.rows; ++i) {
        for (std::int64_t j = 0; j < view.cols; ++j) {
          visit(b, i, j);
        }
      }
    }
  }

  // The first storage index outside the view at which `after` differs, or -1.
  std::int64_t first_stray_write(const Buffer& after) const {
    std::vector<bool> in_view(storage.size() / static_cast<std::size_t>(element_size));
    for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
      in_view[static_cast<std::size_t>(origin + view.at(b, i, j))] = true;
    });
    for (std::size_t index = 0; index < in_view.size(); ++index) {
      const auto size = static_cast<std::size_t>(element_size);
      if (!in_view[index] &&
          std::memcmp(storage.data() + index * size, after.storage.data() + index * size, size) != 0) {
        return static_cast<std::int64_t>(index);
      }
    }
    return -1;
  }
};

}  // namespace pmpp::test
