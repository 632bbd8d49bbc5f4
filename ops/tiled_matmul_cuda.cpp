#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include "csrc/tiled_matmul/launch.hpp"
#include "ops/device_facts.h"
#include "ops/tiled_matmul.h"

namespace pmpp::ops {
namespace {

DeviceFacts facts(const c10::Device& device) { return cuda_device_facts(device); }

void run(const matmul::Plan& plan, const matmul::Problem& problem, const c10::Device& device) {
  const auto size = static_cast<std::uintptr_t>(element_size(problem.dtype));
  const bool complex = problem.dtype == DType::kComplex64 || problem.dtype == DType::kComplex128;
  const std::uintptr_t alignment = complex ? size / 2 : size;
  check_alignment("tiled_matmul", "a", problem.a.data, alignment);
  check_alignment("tiled_matmul", "b", problem.b.data, alignment);
  check_alignment("tiled_matmul", "out", problem.d.data, alignment);
  const c10::cuda::CUDAGuard guard(device);
  at::Tensor workspace;
  if (plan.workspace_bytes > 0) {
    workspace = at::empty({plan.workspace_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  }
  const cudaError_t error = matmul::launch(plan, problem, facts(device), workspace.defined() ? workspace.mutable_data_ptr() : nullptr,
                                           c10::cuda::getCurrentCUDAStream(device.index()));
  TORCH_CHECK(error == cudaSuccess, "tiled_matmul: the kernel did not start: ", launch_failure(device, error),
              "\n  problem: ", matmul::to_string(problem), "\n  plan: ", matmul::to_string(plan));
}

}  // namespace

const MatmulBackend kMatmulCuda = {facts, run};

}  // namespace pmpp::ops
