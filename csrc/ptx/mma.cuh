// Products of a warp on the tensor cores (PTX ISA, "mma.sync.aligned"), sm_80 and later. cuda::ptx has none of them.
//
// m16n8k16 of 16-bit floats: with g = lane / 4 and t = lane % 4, a lane holds pairs of neighbours: of a (16 x 16) k =
// 2t in row g and row g + 8, then k = 2t + 8 in both; of b (16 x 8) k = 2t and k = 2t + 8 in column g; of sum (16 x 8)
// column 2t in row g and row g + 8.
#pragma once

#include <cstdint>

#include "csrc/common/numeric.hpp"

namespace pmpp::ptx {

template <class T>
__device__ void mma_m16n8k16(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

template <>
__device__ __forceinline__ void mma_m16n8k16<Float16>(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                      std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<BFloat16>(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                       std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// m16n8k8 of float64, which sm_90 has and sm_80 does in four parts. A lane holds of a (16 x 8) k = t in row g and row
// g + 8, then k = t + 4 in both; of b (8 x 8) k = t and k = t + 4 in column g; of sum (16 x 8) columns 2t and 2t + 1 in
// row g, then in row g + 8.
__device__ __forceinline__ void mma_m16n8k8(double (&sum)[4], const double (&a)[4], double b0, double b1) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b0), "d"(b1));
#elif __CUDA_ARCH__ >= 800
  const auto part = [](double& x, double& y, double a_part, double b_part) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(x), "+d"(y)
        : "d"(a_part), "d"(b_part));
  };
  part(sum[0], sum[1], a[0], b0);
  part(sum[2], sum[3], a[1], b0);
  part(sum[0], sum[1], a[2], b1);
  part(sum[2], sum[3], a[3], b1);
#endif
}

}  // namespace pmpp::ptx
