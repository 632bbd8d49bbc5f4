// Products of a warp on the tensor cores (PTX ISA, "mma.sync.aligned.m16n8k16"), sm_80 and later. cuda::ptx has none
// of them.
//
// With g = lane / 4 and t = lane % 4, a lane holds pairs of neighbours: of a (16 x 16) k = 2t in row g and row g + 8,
// then k = 2t + 8 in both; of b (16 x 8) k = 2t and k = 2t + 8 in column g; of sum (16 x 8) column 2t in row g and row
// g + 8.
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

}  // namespace pmpp::ptx
