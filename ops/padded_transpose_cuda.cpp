#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include "csrc/padded_transpose/launch.hpp"
#include "ops/device_facts.h"
#include "ops/padded_transpose.h"

namespace pmpp::ops {
namespace {

DeviceFacts facts(const c10::Device& device) { return cuda_device_facts(device); }

void run(const transposition::Plan& plan, const transposition::Problem& problem, const c10::Device& device) {
  const auto size = static_cast<std::uintptr_t>(problem.element_size);
  const std::uintptr_t alignment = size >= 4 ? size / 2 : size;
  check_alignment("padded_transpose", "x", problem.in, alignment);
  check_alignment("padded_transpose", "out", problem.out, alignment);
  const c10::cuda::CUDAGuard guard(device);
  at::Tensor workspace;
  if (plan.workspace_bytes > 0) {
    workspace = at::empty({plan.workspace_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  }
  const cudaError_t error =
      transposition::launch(plan, problem, workspace.defined() ? workspace.mutable_data_ptr() : nullptr,
                            c10::cuda::getCurrentCUDAStream(device.index()));
  TORCH_CHECK(error == cudaSuccess, "padded_transpose: the kernel did not start: ", launch_failure(device, error),
              "\n  problem: ", transposition::to_string(problem), "\n  plan: ", transposition::to_string(plan));
}

}  // namespace

const TransposeBackend kTransposeCuda = {facts, run};

}  // namespace pmpp::ops
