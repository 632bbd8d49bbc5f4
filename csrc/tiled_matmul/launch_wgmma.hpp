// What starts the wgmma kernel: tensor maps, copies of operands that they cannot describe, schedule.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/common/device_facts.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

template <class T>
struct WgmmaArguments;

// Instantiated for each dtype and pair of layouts.
template <class T, bool kTransA, bool kTransB>
cudaError_t launch_wgmma_layout(const Plan& plan, const WgmmaArguments<T>& arguments, cudaStream_t stream);

// Enqueues the copies, the kernel and the second pass that the plan names.
cudaError_t launch_wgmma(const Plan& plan, const Problem& problem, const DeviceFacts& device, void* workspace,
                         cudaStream_t stream);

}  // namespace pmpp::matmul
