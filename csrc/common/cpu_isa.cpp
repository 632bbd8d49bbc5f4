#include "csrc/common/cpu_isa.hpp"

namespace pmpp {

const char* cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

std::optional<CpuIsa> parse_cpu_isa(std::string_view name) {
  for (const CpuIsa isa : kAllCpuIsas) {
    if (name == cpu_isa_name(isa)) return isa;
  }
  return std::nullopt;
}

bool has_cpu_isa(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_cpu_isa(CpuIsa::kAvx2);
  }
  // GCC 11 does not know "f16c" here; every processor with AVX2 has it.
  if (isa == CpuIsa::kAvx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == CpuIsa::kPortable;
}

CpuIsa best_cpu_isa() {
  CpuIsa best = CpuIsa::kPortable;
  for (const CpuIsa isa : kAllCpuIsas) {
    if (has_cpu_isa(isa)) best = isa;
  }
  return best;
}

}  // namespace pmpp
