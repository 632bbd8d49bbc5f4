// Elements of a matrix of any strides, widened, in the order in which the micro-kernels read them. Included once for
// each instruction set.
#pragma once

#include <type_traits>

#include "csrc/common/cpu/simd.hpp"
#include "csrc/common/numeric.hpp"
#include "csrc/tiled_matmul/cpu/micro_kernel.hpp"

namespace pmpp::PMPP_ISA {

// How elements of type T stand in a panel: as units, each the whole of an element, or two steps of k of a small
// integer.
template <class T>
struct Packed {
  using Sums = Sum<T>;
};
template <>
struct Packed<Float16> {
  using Sums = Sum<float>;
};
template <>
struct Packed<BFloat16> {
  using Sums = Sum<float>;
};
template <>
struct Packed<std::int32_t> {
  using Sums = Sum<std::uint32_t>;
};
template <>
struct Packed<std::int64_t> {
  using Sums = Sum<std::uint64_t>;
};
template <class R>
struct Packed<Complex<R>> {
  using Sums = Sum<R>;
};
template <>
struct Packed<std::int16_t> {
  using Sums = Sum<PairOfInt16>;
};
template <>
struct Packed<std::int8_t> {
  using Sums = Sum<PairOfInt16>;
};
template <>
struct Packed<std::uint8_t> {
  using Sums = Sum<PairOfInt16>;
};

template <class T>
using SumsOf = typename Packed<T>::Sums;
template <class T>
using NumberOf = typename SumsOf<T>::Number;
template <class T>
inline constexpr bool kIsComplex = false;
template <class R>
inline constexpr bool kIsComplex<Complex<R>> = true;
template <class T>
inline constexpr int kSteps = sizeof(T) <= 2 && std::is_same_v<SumsOf<T>, Sum<PairOfInt16>> ? 2 : 1;
// Bytes of a unit, and whether an element of the caller is one already.
template <class T>
inline constexpr int kUnitBytes = sizeof(NumberOf<T>) * (kIsComplex<T> ? 2 : 1);
template <class T>
inline constexpr bool kIsUnit = kUnitBytes<T> == sizeof(T);

// The unit of elements x and, where a unit has two steps, y.
template <class T>
PMPP_INLINE void store_unit(void* target, T x, T y) {
  if constexpr (kSteps<T> == 2) {
    const auto low = static_cast<std::uint16_t>(x), high = static_cast<std::uint16_t>(y);
    store(static_cast<std::uint32_t*>(target), std::uint32_t{low} | std::uint32_t{high} << 16);
  } else {
    const AccumulatorOf<T> value = widen(x);
    std::memcpy(target, &value, sizeof(value));
  }
}

template <int kCount>
PMPP_INLINE Vector<float, kCount * 4> widen_floats(const BFloat16* source) {
  const auto bits = load_vector<Vector<std::uint16_t, kCount * 2>>(source);
  return bit_cast<Vector<float, kCount * 4>>(__builtin_convertvector(bits, Vector<std::uint32_t, kCount * 4>) << 16);
}

template <int kCount>
PMPP_INLINE Vector<float, kCount * 4> widen_floats(const Float16* source) {
#if defined(__AVX512F__)
  if constexpr (kCount == 16) return bit_cast<Vector<float, 64>>(_mm512_cvtph_ps(load_vector<__m256i>(source)));
#endif
#if defined(__F16C__)
  if constexpr (kCount == 8) return bit_cast<Vector<float, 32>>(_mm256_cvtph_ps(load_vector<__m128i>(source)));
  if constexpr (kCount == 4) return bit_cast<Vector<float, 16>>(_mm_cvtph_ps(_mm_loadl_epi64((const __m128i*)source)));
#endif
  Vector<float, kCount * 4> result;
  for (int i = 0; i < kCount; ++i) result[i] = load(source + i).to_float();
  return result;
}

// Neighbouring elements as the bytes of neighbouring units: kBytes / kUnitBytes of them. Along k, small integers pair
// up with their neighbours; otherwise each pairs up with the one `step` elements on.
template <class T, int kBytes, bool kAlongK>
PMPP_INLINE Vector<std::uint8_t, kBytes> load_units(const T* source, std::int64_t step) {
  constexpr int kCount = kBytes / kUnitBytes<T>;
  using Bytes = Vector<std::uint8_t, kBytes>;
  if constexpr (kSteps<T> == 2 && kAlongK) {
    if constexpr (sizeof(T) == 2) {
      return load_vector<Bytes>(source);
    } else {
      const auto bytes = load_vector<Vector<T, kCount * 2>>(source);
      return bit_cast<Bytes>(__builtin_convertvector(bytes, Vector<std::int16_t, kBytes>));
    }
  } else if constexpr (kSteps<T> == 2) {
    using Wide = Vector<std::int32_t, kBytes>;
    const Wide low = __builtin_convertvector(load_vector<Vector<T, kCount * sizeof(T)>>(source), Wide);
    const Wide high = __builtin_convertvector(load_vector<Vector<T, kCount * sizeof(T)>>(source + step), Wide);
    return bit_cast<Bytes>((low & 0xffff) | (high << 16));
  } else if constexpr (kIsUnit<T>) {
    return load_vector<Bytes>(source);
  } else {
    return bit_cast<Bytes>(widen_floats<kCount>(source));
  }
}

// A part of a matrix to be packed: `width` rows of a or columns of b, `depth` steps of k.
template <class T>
struct Source {
  const T* data;
  std::int64_t stride, k_stride;  // from one row of a or column of b to the next, from one step of k to the next
  int width;
  std::int64_t depth;

  PMPP_INLINE const T* at(std::int64_t w, std::int64_t k) const { return data + w * stride + k * k_stride; }
};

template <class T>
PMPP_INLINE void pack_one(const Source<T>& s, std::int64_t w, std::int64_t unit, std::uint8_t* target) {
  const std::int64_t k = unit * kSteps<T>;
  const bool paired = kSteps<T> == 2 && k + 1 < s.depth;
  store_unit<T>(target, load(s.at(w, k)), paired ? load(s.at(w, k + 1)) : T{});
}

// Rows of b, or columns of a, that are packed at a time, from end to end: they lie far apart, and each is read faster
// in order than in pieces of a panel. On a Xeon of the third generation (Ice Lake), float32, 256 x 480 of 1024 columns
// that the last-level cache holds take 49 us, one row at a time 57, and a panel after the other 72.
inline constexpr int kLinesTogether = 16;

// Panels of kWidth units for each step (or pair of steps) of k, one panel after the other; units beyond the width are
// zero. What is computed from them is never stored.
template <class T, int kWidth>
void pack_panels(const Source<T>& s, void* panels) {
  constexpr int kBytes = kUnitBytes<T>;
  constexpr int kPerLane = 16 / kBytes;
  constexpr int kPerVector = kVectorBytes / kBytes;
  auto* target = static_cast<std::uint8_t*>(panels);
  const std::int64_t units = (s.depth + kSteps<T> - 1) / kSteps<T>;
  const std::int64_t whole_units = s.depth / kSteps<T>;
  const bool by_rows = s.stride == 1 && kWidth % kPerVector == 0;
  if (by_rows) {
    const std::int64_t whole_width = s.width / kPerVector * kPerVector;
    for (std::int64_t unit0 = 0; unit0 < whole_units; unit0 += kLinesTogether) {
      const std::int64_t end = unit0 + kLinesTogether < whole_units ? unit0 + kLinesTogether : whole_units;
      for (std::int64_t w0 = 0; w0 < whole_width; w0 += kWidth) {
        const std::int64_t width = whole_width - w0 < kWidth ? whole_width - w0 : kWidth;
        for (std::int64_t unit = unit0; unit < end; ++unit) {
          std::uint8_t* const row = target + (w0 * units + unit * kWidth) * kBytes;
          for (std::int64_t w = 0; w < width; w += kPerVector) {
            store_vector(row + w * kBytes,
                         load_units<T, kVectorBytes, false>(s.at(w0 + w, unit * kSteps<T>), s.k_stride));
          }
        }
      }
    }
  }
  for (std::int64_t w0 = 0; w0 < s.width; w0 += kWidth, target += units * kWidth * kBytes) {
    const int width = static_cast<int>(s.width - w0 < kWidth ? s.width - w0 : kWidth);
    const auto address = [&](std::int64_t w, std::int64_t unit) { return target + (unit * kWidth + w) * kBytes; };
    int done_width = 0;
    if (by_rows) {
      done_width = width / kPerVector * kPerVector;
    } else if (s.k_stride == 1 && kWidth % kPerVector == 0) {
      done_width = width / kPerVector * kPerVector;
      const std::int64_t squares = whole_units / kPerLane * kPerLane;
      for (int w = 0; w < done_width; w += kPerVector) {
        for (std::int64_t unit = 0; unit < squares; unit += kPerLane) {
          using Word = std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>;
          Vector<Word> rows[kPerLane];
#pragma GCC unroll 16
          for (int i = 0; i < kPerLane; ++i) {
            Lane lanes[kLanes];
#pragma GCC unroll 4
            for (int lane = 0; lane < kLanes; ++lane) {
              lanes[lane] = load_units<T, 16, true>(s.at(w0 + w + lane * kPerLane + i, unit * kSteps<T>), 0);
            }
            rows[i] = bit_cast<Vector<Word>>(join(lanes));
          }
          if constexpr (kPerLane > 1) transpose_lanes<Word>(rows);
#pragma GCC unroll 16
          for (int i = 0; i < kPerLane; ++i) store_vector(address(w, unit + i), rows[i]);
        }
        for (std::int64_t unit = squares; unit < whole_units; ++unit) {
          for (int i = 0; i < kPerVector; ++i) pack_one(s, w0 + w + i, unit, address(w + i, unit));
        }
      }
    }
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const int first = unit < whole_units ? done_width : 0;
      for (int w = first; w < width; ++w) pack_one(s, w0 + w, unit, address(w, unit));
      if (width < kWidth) std::memset(address(width, unit), 0, (kWidth - width) * kBytes);
    }
  }
}

// One row of units after the other, `pitch` units apart: for a, whose elements are broadcast, when k is contiguous.
template <class T>
void pack_rows(const Source<T>& s, void* rows, std::int64_t pitch) {
  constexpr int kBytes = kUnitBytes<T>;
  constexpr int kPerVector = kVectorBytes / kBytes;
  const std::int64_t units = (s.depth + kSteps<T> - 1) / kSteps<T>;
  const std::int64_t whole_units = s.depth / kSteps<T> / kPerVector * kPerVector;
  for (std::int64_t w = 0; w < s.width; ++w) {
    auto* const target = static_cast<std::uint8_t*>(rows) + w * pitch * kBytes;
    for (std::int64_t unit = 0; unit < whole_units; unit += kPerVector) {
      store_vector(target + unit * kBytes, load_units<T, kVectorBytes, true>(s.at(w, unit * kSteps<T>), 0));
    }
    for (std::int64_t unit = whole_units; unit < units; ++unit) pack_one(s, w, unit, target + unit * kBytes);
  }
}

// Panels of `height` rows of a side by side at every step of k, one panel after the other: when the columns of a are
// contiguous, or nothing is. Whole registers are stored, of which the next step overwrites what reaches into it; the
// last steps of a panel, which would reach into the next, are packed one element at a time.
template <class T>
void pack_columns(const Source<T>& s, int height, void* columns) {
  constexpr int kBytes = kUnitBytes<T>;
  constexpr int kPerVector = kVectorBytes / kBytes;
  const int reach = (height + kPerVector - 1) / kPerVector * kPerVector;
  const std::int64_t units = (s.depth + kSteps<T> - 1) / kSteps<T>;
  const std::int64_t last_units = (reach - 1) / height;
  auto* const target = static_cast<std::uint8_t*>(columns);
  std::int64_t whole_units = 0, whole_width = 0;
  if (s.stride == 1 && reach <= s.width && last_units < units) {
    whole_units = s.depth / kSteps<T> < units - last_units ? s.depth / kSteps<T> : units - last_units;
    whole_width = ((s.width - reach) / height + 1) * height;
  }
  for (std::int64_t unit0 = 0; unit0 < whole_units; unit0 += kLinesTogether) {
    const std::int64_t end = unit0 + kLinesTogether < whole_units ? unit0 + kLinesTogether : whole_units;
    for (std::int64_t w0 = 0; w0 < whole_width; w0 += height) {
      for (std::int64_t unit = unit0; unit < end; ++unit) {
        for (int w = 0; w < height; w += kPerVector) {
          store_vector(target + (w0 * units + unit * height + w) * kBytes,
                       load_units<T, kVectorBytes, false>(s.at(w0 + w, unit * kSteps<T>), s.k_stride));
        }
      }
    }
  }
  for (std::int64_t w0 = 0; w0 < s.width; w0 += height) {
    const int width = static_cast<int>(s.width - w0 < height ? s.width - w0 : height);
    for (std::int64_t unit = w0 < whole_width ? whole_units : 0; unit < units; ++unit) {
      for (int w = 0; w < width; ++w) pack_one(s, w0 + w, unit, target + (w0 * units + unit * height + w) * kBytes);
    }
  }
}

}  // namespace pmpp::PMPP_ISA
