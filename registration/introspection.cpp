// The operators that tell what would run, and what did. They launch nothing and record nothing, so one registration
// serves every device.
#include <torch/library.h>

#include <optional>
#include <string>
#include <vector>

#include "ops/device_facts.h"
#include "ops/padded_transpose.h"
#include "ops/planning.h"
#include "ops/stats.h"
#include "ops/tiled_matmul.h"

namespace pmpp::ops {
namespace {

#ifdef PMPP_WITH_CUDA
constexpr const char* kBackends = "cpu and cuda";
#else
constexpr const char* kBackends = "cpu";
#endif

[[noreturn]] void throw_no_backend(const c10::Device& device) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "pmpp has no kernels for ", device, "; this build has them for ", kBackends);
  __builtin_unreachable();
}

const MatmulBackend& matmul_backend(const c10::Device& device) {
  if (device.is_cpu()) return kMatmulCpu;
#ifdef PMPP_WITH_CUDA
  if (device.is_cuda()) return kMatmulCuda;
#endif
  throw_no_backend(device);
}

const TransposeBackend& transpose_backend(const c10::Device& device) {
  if (device.is_cpu()) return kTransposeCpu;
#ifdef PMPP_WITH_CUDA
  if (device.is_cuda()) return kTransposeCuda;
#endif
  throw_no_backend(device);
}

std::vector<std::string> algorithms(c10::string_view op, c10::Device device, at::ScalarType dtype) {
  if (op == "tiled_matmul") return tiled_matmul_algorithms(matmul_backend(device).facts(device), dtype);
  TORCH_CHECK_VALUE(op == "padded_transpose", "algorithms: unknown operator '", op,
                    "'; expected tiled_matmul or padded_transpose");
  return padded_transpose_algorithms(transpose_backend(device).facts(device), dtype);
}

std::string matmul_plan(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  return tiled_matmul_plan(matmul_backend(a.device()), a, b, algorithm);
}

std::vector<std::string> matmul_plans(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm,
                                      at::Tensor& out) {
  return tiled_matmul_plans(matmul_backend(a.device()), a, b, algorithm, out);
}

void matmul_with_plan(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm, std::int64_t index,
                      const std::optional<at::Tensor>& c, const at::Scalar& alpha, const at::Scalar& beta,
                      at::Tensor& out) {
  tiled_matmul_with_plan(matmul_backend(a.device()), a, b, algorithm, index, c, alpha, beta, out);
}

std::string transpose_plan(const at::Tensor& x, c10::string_view algorithm) {
  return padded_transpose_plan(transpose_backend(x.device()), x, algorithm);
}

c10::Dict<std::string, std::int64_t> stats_dict() {
  c10::Dict<std::string, std::int64_t> result;
  for (const auto& [name, count] : stats()) result.insert(name, count);
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(pmpp, CompositeExplicitAutograd, m) {
  m.impl("_tiled_matmul_plan", matmul_plan);
  m.impl("_tiled_matmul_plans", matmul_plans);
  m.impl("_tiled_matmul_with_plan", matmul_with_plan);
  m.impl("_padded_transpose_plan", transpose_plan);
}

// Without a tensor argument there is no dispatch key to choose by.
TORCH_LIBRARY_IMPL(pmpp, CatchAll, m) {
  m.impl("_algorithms", algorithms);
  m.impl("_algorithms_on", algorithms_on);
  m.impl("_plan_on", plan_on);
  m.impl("_stats", stats_dict);
  m.impl("_reset_stats", reset_stats);
}

}  // namespace pmpp::ops
