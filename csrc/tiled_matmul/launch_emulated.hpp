// What starts the emulated kernel: the split of its operands, tensor maps, schedule, second pass.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

template <class T>
struct EmulatedArguments;

// Instantiated for float and Complex<float> and each pair of layouts.
template <class T, bool kTransA, bool kTransB>
cudaError_t launch_emulated_layout(const Plan& plan, const EmulatedArguments<T>& arguments, cudaStream_t stream);

// Enqueues the split, the kernel and the second pass that the plan names.
cudaError_t launch_emulated(const Plan& plan, const Problem& problem, void* workspace, cudaStream_t stream);

}  // namespace pmpp::matmul
