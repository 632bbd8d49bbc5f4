#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "ops/device_facts.h"

namespace pmpp::ops {
namespace {

CpuIsa asked_cpu_isa() {
  const char* const name = std::getenv("PMPP_CPU_ISA");
  if (name == nullptr || *name == '\0') return best_cpu_isa();
  std::string usable;
  for (const CpuIsa isa : kAllCpuIsas) {
    if (has_cpu_isa(isa)) usable += (usable.empty() ? "" : ", ") + std::string(cpu_isa_name(isa));
  }
  const std::optional<CpuIsa> isa = parse_cpu_isa(name);
  TORCH_CHECK_VALUE(isa.has_value() && has_cpu_isa(*isa), "pmpp: PMPP_CPU_ISA is '", name,
                    "', but this machine can run: ", usable);
  return *isa;
}

}  // namespace

DeviceFacts cpu_device_facts() {
  static const CpuIsa isa = asked_cpu_isa();
  static const std::int64_t stream_bytes = cpu_stream_bytes();
  return cpu_facts(at::in_parallel_region() ? 1 : at::get_num_threads(), isa, stream_bytes);
}

}  // namespace pmpp::ops
