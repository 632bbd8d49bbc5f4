// SIMD registers of the instruction set that a file is compiled for, and what the kernels of both operators need of
// them.
//
// Included only by files that are compiled once for each instruction set, with PMPP_ISA naming the set. Everything
// here is inlined or lies in a namespace of that name: a shared inline function would be merged by the linker, and a
// machine without AVX-512 might meet the copy that was compiled for it.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "csrc/common/numeric.hpp"

#ifndef PMPP_ISA
#error "PMPP_ISA names the instruction set that this file is compiled for"
#endif

namespace pmpp::PMPP_ISA {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
// A register as 16-byte lanes: the shuffles of x86 work within them.
inline constexpr int kLanes = kVectorBytes / 16;

// GCC ignores vector_size on a dependent type, so every element type is written out.
template <class E, int kBytes>
struct VectorOf;
#define PMPP_VECTOR(E)                                   \
  template <int kBytes>                                  \
  struct VectorOf<E, kBytes> {                           \
    typedef E type __attribute__((vector_size(kBytes))); \
  }
PMPP_VECTOR(float);
PMPP_VECTOR(double);
PMPP_VECTOR(std::int8_t);
PMPP_VECTOR(std::int16_t);
PMPP_VECTOR(std::int32_t);
PMPP_VECTOR(std::int64_t);
PMPP_VECTOR(std::uint8_t);
PMPP_VECTOR(std::uint16_t);
PMPP_VECTOR(std::uint32_t);
PMPP_VECTOR(std::uint64_t);
#undef PMPP_VECTOR

template <class E, int kBytes = kVectorBytes>
using Vector = typename VectorOf<E, kBytes>::type;

// Memory of the caller is of any type and at any address.
template <class V>
PMPP_INLINE V load_vector(const void* address) {
  V value;
  std::memcpy(&value, address, sizeof(V));
  return value;
}

template <class V>
PMPP_INLINE void store_vector(void* address, V value) {
  std::memcpy(address, &value, sizeof(V));
}

template <class To, class From>
PMPP_INLINE To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

// The first elements of a register, of 4 or 8 bytes each: what lies behind them in memory is neither read nor written,
// and reads as zero.
template <class E>
class Part {
 public:
#if defined(__AVX512F__)
  PMPP_INLINE explicit Part(int count) : mask_(static_cast<Mask>((1u << count) - 1)) {}
#elif defined(__AVX2__)
  PMPP_INLINE explicit Part(int count) {
    Vector<Word> index;
    for (int i = 0; i < kVectorBytes / static_cast<int>(sizeof(E)); ++i) index[i] = i;
    mask_ = bit_cast<__m256i>(index < static_cast<Word>(count));
  }
#else
  PMPP_INLINE explicit Part(int count) : count_(count) {}
#endif

  PMPP_INLINE Vector<E> load(const void* address) const {
#if defined(__AVX512F__)
    if constexpr (sizeof(E) == 4) return bit_cast<Vector<E>>(_mm512_maskz_loadu_epi32(mask_, address));
    if constexpr (sizeof(E) == 8) return bit_cast<Vector<E>>(_mm512_maskz_loadu_epi64(mask_, address));
#elif defined(__AVX2__)
    if constexpr (sizeof(E) == 4) {
      return bit_cast<Vector<E>>(_mm256_maskload_epi32(static_cast<const int*>(address), mask_));
    } else {
      return bit_cast<Vector<E>>(_mm256_maskload_epi64(static_cast<const long long*>(address), mask_));
    }
#else
    Vector<E> value = {};
    std::memcpy(&value, address, static_cast<std::size_t>(count_) * sizeof(E));
    return value;
#endif
  }

  PMPP_INLINE void store(void* address, Vector<E> value) const {
#if defined(__AVX512F__)
    const auto bits = bit_cast<__m512i>(value);
    if constexpr (sizeof(E) == 4) _mm512_mask_storeu_epi32(address, mask_, bits);
    if constexpr (sizeof(E) == 8) _mm512_mask_storeu_epi64(address, mask_, bits);
#elif defined(__AVX2__)
    const auto bits = bit_cast<__m256i>(value);
    if constexpr (sizeof(E) == 4) _mm256_maskstore_epi32(static_cast<int*>(address), mask_, bits);
    if constexpr (sizeof(E) == 8) _mm256_maskstore_epi64(static_cast<long long*>(address), mask_, bits);
#else
    std::memcpy(address, &value, static_cast<std::size_t>(count_) * sizeof(E));
#endif
  }

 private:
  static_assert(sizeof(E) == 4 || sizeof(E) == 8);
#if defined(__AVX512F__)
  using Mask = std::conditional_t<sizeof(E) == 4, __mmask16, __mmask8>;
  Mask mask_;
#elif defined(__AVX2__)
  using Word = std::conditional_t<sizeof(E) == 4, std::int32_t, std::int64_t>;
  __m256i mask_;
#else
  int count_;
#endif
};

// A register past the caches, to an address on a boundary of one. Such stores are ordered by finish_streaming() alone.
PMPP_INLINE void stream_vector(void* address, Vector<std::uint8_t> value) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(address), bit_cast<__m512i>(value));
#elif defined(__AVX2__)
  _mm256_stream_si256(static_cast<__m256i*>(address), bit_cast<__m256i>(value));
#elif defined(__SSE2__)
  _mm_stream_si128(static_cast<__m128i*>(address), bit_cast<__m128i>(value));
#else
  store_vector(address, value);
#endif
}

// Before another thread may read what was streamed.
PMPP_INLINE void finish_streaming() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

using Lane = Vector<std::uint8_t, 16>;

// Lane i of the register from rows[i].
PMPP_INLINE Vector<std::uint8_t> join(const Lane* rows) {
#if defined(__AVX512F__)
  const auto lane = [&](int i) { return bit_cast<__m128i>(rows[i]); };
  __m512i all = _mm512_castsi128_si512(lane(0));
  all = _mm512_inserti32x4(all, lane(1), 1);
  all = _mm512_inserti32x4(all, lane(2), 2);
  return bit_cast<Vector<std::uint8_t>>(_mm512_inserti32x4(all, lane(3), 3));
#elif defined(__AVX2__)
  const __m256i low = _mm256_castsi128_si256(bit_cast<__m128i>(rows[0]));
  return bit_cast<Vector<std::uint8_t>>(_mm256_inserti128_si256(low, bit_cast<__m128i>(rows[1]), 1));
#else
  return rows[0];
#endif
}

template <class V, class Mask>
PMPP_INLINE V shuffle(V a, V b, Mask mask) {
#if defined(__clang__)
  V result;
  constexpr int count = sizeof(V) / sizeof(a[0]);
  for (int i = 0; i < count; ++i) result[i] = mask[i] < count ? a[mask[i]] : b[mask[i] - count];
  return result;
#else
  return __builtin_shuffle(a, b, mask);
#endif
}

// The halves of two registers woven into each other, lane by lane: a0 b0 a1 b1 ... from the lower (kHalf 0) or the
// upper (kHalf 1) eight bytes of each lane.
template <int kHalf, class E, std::size_t... kIndex>
PMPP_INLINE Vector<E> weave(Vector<E> a, Vector<E> b, std::index_sequence<kIndex...>) {
  constexpr std::size_t kPerLane = 16 / sizeof(E);
  return shuffle(a, b,
                 Vector<E>{static_cast<E>(kIndex / kPerLane * kPerLane + kHalf * kPerLane / 2 + kIndex % kPerLane / 2 +
                                          kIndex % 2 * (kVectorBytes / sizeof(E)))...});
}

// Transposes, in every lane by itself, the square of 16 / sizeof(E) rows and as many elements: row after row of the
// result is woven from rows that lie half a square apart, log2 times.
template <class E>
PMPP_INLINE void transpose_lanes(Vector<E>* rows) {
  constexpr int kRows = 16 / sizeof(E);
  constexpr auto kIndices = std::make_index_sequence<kVectorBytes / sizeof(E)>();
  for (int round = 1; round < kRows; round *= 2) {
    Vector<E> next[kRows];
#pragma GCC unroll 16
    for (int i = 0; i < kRows / 2; ++i) {
      next[2 * i] = weave<0, E>(rows[i], rows[i + kRows / 2], kIndices);
      next[2 * i + 1] = weave<1, E>(rows[i], rows[i + kRows / 2], kIndices);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) rows[i] = next[i];
  }
}

}  // namespace pmpp::PMPP_ISA
