// The instruction sets that CPU kernels are compiled for, and which of them this machine has.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pmpp {

// In rising order: each includes the ones before it.
enum class CpuIsa : std::uint8_t {
  kPortable,  // what the compiler's target has at least: SSE2 on x86-64, NEON on 64-bit Arm
  kAvx2,      // AVX2, FMA, F16C: Haswell (2013), Zen and later
  kAvx512,    // AVX-512 F, BW, DQ, VL: Skylake-X (2017), Zen 4 and later
};

inline constexpr CpuIsa kAllCpuIsas[] = {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512};

const char* cpu_isa_name(CpuIsa isa);
std::optional<CpuIsa> parse_cpu_isa(std::string_view name);

// Whether this build has kernels for it, and this machine and its operating system can run them.
bool has_cpu_isa(CpuIsa isa);

// The last of them that has_cpu_isa() accepts.
CpuIsa best_cpu_isa();

// Bytes from which a result that is written in scattered lines is better written past the caches; more than there are
// where it never is.
std::int64_t cpu_stream_bytes();

}  // namespace pmpp
