// Starts the simt kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/common/device_facts.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/simt.hpp"

namespace pmpp::matmul {

template <class T>
struct SimtArguments;

// Starts a plan for simt. `workspace` holds the plan's partial sums, 16-byte aligned.
cudaError_t launch_simt(const Plan& plan, const Problem& problem, const DeviceFacts& device, void* workspace,
                        cudaStream_t stream);

// The kernel alone, of a problem that is simt_problem(). Instantiated once a dtype, in simt_<dtype>.cu.
template <class T>
cudaError_t launch_simt_typed(const Plan& plan, const Problem& problem, void* partial, cudaStream_t stream);

// The same for float32, whose kernels are compiled for each order of the operands: those with this order of a.
template <SimtOrder kAOrder>
cudaError_t launch_simt_ordered(int config, const SimtArguments<float>& args, SimtOrder b_order, unsigned blocks,
                                cudaStream_t stream);

}  // namespace pmpp::matmul
