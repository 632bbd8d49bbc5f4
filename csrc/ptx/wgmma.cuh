// wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"), which cuda::ptx lacks. sm_90a only.
#pragma once

#include <cstdint>

#include "csrc/common/numeric.hpp"

namespace pmpp::ptx {

// Orders this warpgroup's register and shared-memory accesses before the wgmma that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most kPending groups of this warpgroup are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// A matrix in shared memory in the 128-byte swizzle ("Matrix Descriptor Format"): its address, a multiple of 16, and
// the distances in bytes between its 64-element columns of tiles (leading) and its 8-row groups (stride).
__device__ __forceinline__ std::uint64_t wgmma_descriptor(std::uint32_t address, int leading_bytes, int stride_bytes) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  return static_cast<std::uint64_t>((address & 0x3ffff) >> 4) | static_cast<std::uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<std::uint64_t>(stride_bytes >> 4) << 32 | kSwizzle128;
}

// d (64 x kN, float32) = a (64 x 16) * b (16 x kN) + (accumulate ? d : 0), a and b of T in shared memory. kTransA: a
// lies with its rows' index contiguous (MN-major), else k; kTransB likewise. Thread t of the warpgroup holds row
// t / 32 * 16 + t % 32 / 4 of columns 8 i + t % 4 * 2 and the next in d[4 i] and d[4 i + 1], and of the row 8 below in
// d[4 i + 2] and d[4 i + 3].
template <class T, int kN, bool kTransA, bool kTransB>
struct Wgmma;

// Operand lists of inline assembly cannot be computed by templates.
// clang-format off
#define PMPP_OUT_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
                      "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define PMPP_OUT_32(i) PMPP_OUT_8(i), PMPP_OUT_8(i + 8), PMPP_OUT_8(i + 16), PMPP_OUT_8(i + 24)
#define PMPP_REGS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PMPP_OUTS_8 PMPP_OUT_8(0)
#define PMPP_REGS_16 PMPP_REGS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PMPP_OUTS_16 PMPP_OUT_8(0), PMPP_OUT_8(8)
#define PMPP_REGS_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PMPP_OUTS_32 PMPP_OUT_32(0)
#define PMPP_REGS_64 PMPP_REGS_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PMPP_OUTS_64 PMPP_OUT_32(0), PMPP_OUT_32(32)
#define PMPP_REGS_96 PMPP_REGS_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PMPP_OUTS_96 PMPP_OUT_32(0), PMPP_OUT_32(32), PMPP_OUT_32(64)
#define PMPP_REGS_128 PMPP_REGS_96 ", " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define PMPP_OUTS_128 PMPP_OUT_32(0), PMPP_OUT_32(32), PMPP_OUT_32(64), PMPP_OUT_32(96)
#define PMPP_WGMMA(type, name, n, count, a, b, accumulate, trans_a, trans_b)                                       \
  template <bool kTransA, bool kTransB>                                                                            \
  struct Wgmma<type, n, kTransA, kTransB> {                                                                        \
    static __device__ __forceinline__ void mma(float (&d)[count], std::uint64_t a_descriptor,                      \
                                               std::uint64_t b_descriptor, int is_accumulating) {                  \
      asm volatile("{\n"                                                                                           \
                   ".reg .pred p;\n"                                                                               \
                   "setp.ne.b32 p, " accumulate ", 0;\n"                                                           \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name " {" PMPP_REGS_##count "}, "    \
                   a ", " b ", p, 1, 1, " trans_a ", " trans_b ";\n"                                               \
                   "}\n"                                                                                           \
                   : PMPP_OUTS_##count                                                                             \
                   : "l"(a_descriptor), "l"(b_descriptor), "r"(is_accumulating), "n"(static_cast<int>(kTransA)),   \
                     "n"(static_cast<int>(kTransB)));                                                              \
    }                                                                                                              \
  };
PMPP_WGMMA(Float16, "f16", 16, 8, "%8", "%9", "%10", "%11", "%12")
PMPP_WGMMA(Float16, "f16", 32, 16, "%16", "%17", "%18", "%19", "%20")
PMPP_WGMMA(Float16, "f16", 64, 32, "%32", "%33", "%34", "%35", "%36")
PMPP_WGMMA(Float16, "f16", 128, 64, "%64", "%65", "%66", "%67", "%68")
PMPP_WGMMA(Float16, "f16", 192, 96, "%96", "%97", "%98", "%99", "%100")
PMPP_WGMMA(Float16, "f16", 256, 128, "%128", "%129", "%130", "%131", "%132")
PMPP_WGMMA(BFloat16, "bf16", 16, 8, "%8", "%9", "%10", "%11", "%12")
PMPP_WGMMA(BFloat16, "bf16", 32, 16, "%16", "%17", "%18", "%19", "%20")
PMPP_WGMMA(BFloat16, "bf16", 64, 32, "%32", "%33", "%34", "%35", "%36")
PMPP_WGMMA(BFloat16, "bf16", 128, 64, "%64", "%65", "%66", "%67", "%68")
PMPP_WGMMA(BFloat16, "bf16", 192, 96, "%96", "%97", "%98", "%99", "%100")
PMPP_WGMMA(BFloat16, "bf16", 256, 128, "%128", "%129", "%130", "%131", "%132")
#undef PMPP_WGMMA
// The same for tf32: a (64 x 8) * b (8 x kN) of float32, of which the last 13 bits are not looked at, and both with k
// contiguous. With kTransA, a comes from registers: rows i and i + 8 of column j, then of column j + 4, where i is the
// row of d[0] and j the thread's number modulo 4.
#define PMPP_WGMMA_TF32(n, count, a, b, accumulate)                                                                \
  template <>                                                                                                      \
  struct Wgmma<float, n, false, false> {                                                                           \
    static __device__ __forceinline__ void mma(float (&d)[count], std::uint64_t a_descriptor,                      \
                                               std::uint64_t b_descriptor, int is_accumulating) {                  \
      asm volatile("{\n"                                                                                           \
                   ".reg .pred p;\n"                                                                               \
                   "setp.ne.b32 p, " accumulate ", 0;\n"                                                           \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32 {" PMPP_REGS_##count "}, "             \
                   a ", " b ", p, 1, 1;\n"                                                                         \
                   "}\n"                                                                                           \
                   : PMPP_OUTS_##count                                                                             \
                   : "l"(a_descriptor), "l"(b_descriptor), "r"(is_accumulating));                                  \
    }                                                                                                              \
  };
#define PMPP_WGMMA_TF32_REGISTERS(n, count, a0, a1, a2, a3, b, accumulate)                                         \
  template <>                                                                                                      \
  struct Wgmma<float, n, true, false> {                                                                            \
    static __device__ __forceinline__ void mma(float (&d)[count], const std::uint32_t (&a)[4],                      \
                                               std::uint64_t b_descriptor, int is_accumulating) {                  \
      asm volatile("{\n"                                                                                           \
                   ".reg .pred p;\n"                                                                               \
                   "setp.ne.b32 p, " accumulate ", 0;\n"                                                           \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32 {" PMPP_REGS_##count "}, "             \
                   "{" a0 ", " a1 ", " a2 ", " a3 "}, " b ", p, 1, 1;\n"                                           \
                   "}\n"                                                                                           \
                   : PMPP_OUTS_##count                                                                             \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor), "r"(is_accumulating));         \
    }                                                                                                              \
  };
PMPP_WGMMA_TF32(16, 8, "%8", "%9", "%10")
PMPP_WGMMA_TF32(32, 16, "%16", "%17", "%18")
PMPP_WGMMA_TF32(64, 32, "%32", "%33", "%34")
PMPP_WGMMA_TF32(128, 64, "%64", "%65", "%66")
PMPP_WGMMA_TF32(192, 96, "%96", "%97", "%98")
PMPP_WGMMA_TF32(256, 128, "%128", "%129", "%130")
#undef PMPP_WGMMA_TF32
PMPP_WGMMA_TF32_REGISTERS(16, 8, "%8", "%9", "%10", "%11", "%12", "%13")
PMPP_WGMMA_TF32_REGISTERS(32, 16, "%16", "%17", "%18", "%19", "%20", "%21")
PMPP_WGMMA_TF32_REGISTERS(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
PMPP_WGMMA_TF32_REGISTERS(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
PMPP_WGMMA_TF32_REGISTERS(192, 96, "%96", "%97", "%98", "%99", "%100", "%101")
PMPP_WGMMA_TF32_REGISTERS(256, 128, "%128", "%129", "%130", "%131", "%132", "%133")
#undef PMPP_WGMMA_TF32_REGISTERS
#undef PMPP_REGS_8
#undef PMPP_OUTS_8
#undef PMPP_REGS_16
#undef PMPP_OUTS_16
#undef PMPP_REGS_32
#undef PMPP_OUTS_32
#undef PMPP_REGS_64
#undef PMPP_OUTS_64
#undef PMPP_REGS_96
#undef PMPP_OUTS_96
#undef PMPP_REGS_128
#undef PMPP_OUTS_128
#undef PMPP_OUT_32
#undef PMPP_OUT_8
// clang-format on

}  // namespace pmpp::ptx
