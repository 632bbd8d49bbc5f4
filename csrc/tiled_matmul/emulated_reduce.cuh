// The second pass of emulated over pieces of k: their float32 sums, [split][batch][m][n] without gaps, are added up in
// double in the order of k and rounded once; what is then NaN or infinite is computed anew (exact_dot.cuh). Bound by
// the bytes of the sums.
//
// Tiling: the results of all batches are one line, of which a block owns a piece; the elements of a thread lie
// kEmulatedReduceThreads apart, so that the reads of a warp are whole lines. No barriers.
// Preconditions: blockDim.x = kEmulatedReduceThreads, one block for each piece of the line.
#pragma once

#include <cstdint>

#include "csrc/ptx/hopper.cuh"
#include "csrc/tiled_matmul/exact_dot.cuh"
#include "csrc/tiled_matmul/index.cuh"
#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

inline constexpr int kEmulatedReduceThreads = 256;
inline constexpr int kEmulatedReduceElements = 4;  // of a thread, kEmulatedReduceThreads apart

// Partial sums begin at a multiple of 16 bytes.
__device__ __forceinline__ float read_partial(const float* at) { return __ldcs(at); }
__device__ __forceinline__ Complex<float> read_partial(const Complex<float>* at) {
  const float2 pair = __ldcs(reinterpret_cast<const float2*>(at));
  return {pair.x, pair.y};
}

// T: float or Complex<float>.
template <class T>
__global__ void __launch_bounds__(kEmulatedReduceThreads)
    tiled_matmul_emulated_reduce_kernel(const __grid_constant__ Arguments<T> p, const T* partial, int splits) {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_wait();
  constexpr int kElements = kEmulatedReduceElements, kThreads = kEmulatedReduceThreads;
  const int lane = threadIdx.x % 32;
  const std::int64_t total = p.batch * p.m * p.n;
  const std::int64_t first = std::int64_t{blockIdx.x} * (kThreads * kElements) + threadIdx.x;
  WidenedOf<T> sum[kElements] = {};
#pragma unroll 4
  for (int split = 0; split < splits; ++split) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const std::int64_t index = first + i * kThreads;
      if (index < total) sum[i] = add(sum[i], to_double(read_partial(partial + split * total + index)));
    }
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const std::int64_t index = first + i * kThreads;
    const bool inside = index < total;
    const std::int64_t line = divide(inside ? index : 0, p.n);
    const std::int64_t batch = divide(line, p.m);
    const std::int64_t row = line - batch * p.m, col = (inside ? index : 0) - line * p.n;
    const T result = to_float(sum[i]);
    if (inside && is_finite(result)) p.store(batch, row, col, result);
    for (unsigned left = __ballot_sync(~0u, inside && !is_finite(result)); left != 0; left &= left - 1) {
      const int owner = __ffs(static_cast<int>(left)) - 1;
      const T exact =
          exact_dot(p, __shfl_sync(~0u, batch, owner), __shfl_sync(~0u, row, owner), __shfl_sync(~0u, col, owner));
      if (lane == owner) p.store(batch, row, col, exact);
    }
  }
#endif
}

}  // namespace pmpp::matmul
