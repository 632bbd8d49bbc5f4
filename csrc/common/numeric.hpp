// Element types and their arithmetic, the same for CPU and CUDA kernels.
//
// A kernel reads elements with widen(), adds products with multiply_add() in Accumulator<T>, and writes with
// narrow<T>(): 16-bit floats are summed in float32 and rounded once; integers are summed modulo 2^32 or 2^64, which
// gives two's-complement wrap-around in any narrower width without undefined behaviour.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define PMPP_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define PMPP_HOST_DEVICE inline __attribute__((always_inline))
#endif
// CPU kernels are compiled once for each instruction set. What they call is always inlined: a copy of a function that
// the linker shares between them may hold instructions that the machine lacks.
#define PMPP_INLINE inline __attribute__((always_inline))

namespace pmpp {

PMPP_HOST_DEVICE std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

PMPP_HOST_DEVICE float float_from_bits(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// IEEE 754 binary16 storage. Conversions round to nearest, ties to even; NaN stays NaN.
struct Float16 {
  std::uint16_t bits;

  PMPP_HOST_DEVICE float to_float() const {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(bits));
#else
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0x1f) return float_from_bits(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0) return float_from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
    // Zero or subnormal: mantissa * 2^-24, exact in float32.
    const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
    return float_from_bits(sign | float_bits(magnitude));
#endif
  }

  static PMPP_HOST_DEVICE Float16 from_float(float value) {
#ifdef __CUDA_ARCH__
    return {__half_as_ushort(__float2half_rn(value))};
#else
    const std::uint32_t source = float_bits(value);
    const std::uint16_t sign = static_cast<std::uint16_t>((source >> 16) & 0x8000u);
    const std::uint32_t magnitude = source & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
    // 65520, halfway between the largest finite value and 2^16, is the first that rounds to infinity.
    if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
    if (magnitude < 0x38800000u) {
      // Below 2^-14 the result is subnormal with steps of 2^-24. Adding 0.5, whose last float32 bit is 2^-24, lets
      // the addition do the rounding.
      const float shifted = float_from_bits(magnitude) + 0.5f;
      return {static_cast<std::uint16_t>(sign | (float_bits(shifted) - 0x3f000000u))};
    }
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    const std::uint32_t rounded = magnitude + 0xfffu + odd - (112u << 23);
    return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
#endif
  }
};

// bfloat16 storage: the upper half of a float32. Conversions as for Float16.
struct BFloat16 {
  std::uint16_t bits;

  PMPP_HOST_DEVICE float to_float() const { return float_from_bits(static_cast<std::uint32_t>(bits) << 16); }

  static PMPP_HOST_DEVICE BFloat16 from_float(float value) {
#ifdef __CUDA_ARCH__
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
    const std::uint32_t source = float_bits(value);
    if ((source & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((source >> 16) | 0x40u)};
    return {static_cast<std::uint16_t>((source + 0x7fffu + ((source >> 16) & 1u)) >> 16)};
#endif
  }
};

// Two reals side by side, laid out as C and PyTorch lay out complex numbers. Not aligned to both: a tensor over foreign
// memory may start at a multiple of one real.
template <class T>
struct Complex {
  T re, im;
};

// Reads and writes elements in memory of the caller. On the CPU an element may start at any byte, as PyTorch's own
// operators allow; a GPU faults unless it starts at a multiple of its alignment.
template <class T>
PMPP_HOST_DEVICE T load(const T* address) {
#ifdef __CUDA_ARCH__
  return *address;
#else
  T value;
  memcpy(&value, static_cast<const void*>(address), sizeof(value));
  return value;
#endif
}

template <class T>
PMPP_HOST_DEVICE void store(T* address, T value) {
#ifdef __CUDA_ARCH__
  *address = value;
#else
  memcpy(static_cast<void*>(address), &value, sizeof(value));
#endif
}

template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<Float16> {
  using type = float;
};
template <>
struct Accumulator<BFloat16> {
  using type = float;
};
template <>
struct Accumulator<std::uint8_t> {
  using type = std::uint32_t;
};
template <>
struct Accumulator<std::int8_t> {
  using type = std::uint32_t;
};
template <>
struct Accumulator<std::int16_t> {
  using type = std::uint32_t;
};
template <>
struct Accumulator<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct Accumulator<std::int64_t> {
  using type = std::uint64_t;
};
template <class T>
using AccumulatorOf = typename Accumulator<T>::type;

// Widening to the accumulator is exact for every type.
template <class T>
PMPP_HOST_DEVICE AccumulatorOf<T> widen(T value) {
  return static_cast<AccumulatorOf<T>>(value);
}
PMPP_HOST_DEVICE float widen(Float16 value) { return value.to_float(); }
PMPP_HOST_DEVICE float widen(BFloat16 value) { return value.to_float(); }

template <class T>
struct Narrow {
  static PMPP_HOST_DEVICE T apply(AccumulatorOf<T> value) { return static_cast<T>(value); }
};
template <>
struct Narrow<Float16> {
  static PMPP_HOST_DEVICE Float16 apply(float value) { return Float16::from_float(value); }
};
template <>
struct Narrow<BFloat16> {
  static PMPP_HOST_DEVICE BFloat16 apply(float value) { return BFloat16::from_float(value); }
};
template <class T>
PMPP_HOST_DEVICE T narrow(AccumulatorOf<T> value) {
  return Narrow<T>::apply(value);
}

template <class Acc>
PMPP_HOST_DEVICE Acc multiply_add(Acc sum, Acc x, Acc y) {
  return sum + x * y;
}
template <class R>
PMPP_HOST_DEVICE Complex<R> multiply_add(Complex<R> sum, Complex<R> x, Complex<R> y) {
  return {sum.re + x.re * y.re - x.im * y.im, sum.im + x.re * y.im + x.im * y.re};
}

template <class Acc>
PMPP_HOST_DEVICE Acc add(Acc x, Acc y) {
  return x + y;
}
template <class R>
PMPP_HOST_DEVICE Complex<R> add(Complex<R> x, Complex<R> y) {
  return {x.re + y.re, x.im + y.im};
}

template <class Acc>
PMPP_HOST_DEVICE Acc scale(Acc factor, Acc value) {
  return factor * value;
}
// A real factor multiplies both parts on their own: as a complex product, 1 * infinity would give a false NaN.
template <class R>
PMPP_HOST_DEVICE Complex<R> scale(Complex<R> factor, Complex<R> value) {
  if (factor.im == R(0)) return {factor.re * value.re, factor.re * value.im};
  return {factor.re * value.re - factor.im * value.im, factor.re * value.im + factor.im * value.re};
}

}  // namespace pmpp
