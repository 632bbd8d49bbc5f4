// The facts of a device, for selection.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "csrc/common/device_facts.hpp"

namespace pmpp::ops {

// Threads as torch.set_num_threads() set them, or one inside a parallel region, where PyTorch runs serially. The
// instruction set is the best that the machine has, or the one that the environment variable PMPP_CPU_ISA names
// (portable, avx2, avx512), which is read once; throws ValueError if that is none of them or the machine lacks it.
DeviceFacts cpu_device_facts();

#ifdef PMPP_WITH_CUDA
// Throws unless `data` is a multiple of `alignment` bytes: a kernel that reads elements from elsewhere ends the
// process's use of the GPU. PyTorch's own allocations always are; memory of others, wrapped in a tensor, may not be.
void check_alignment(const char* op, const char* name, const void* data, std::uintptr_t alignment);

// Read from the driver once a device and process, then a table look-up.
const DeviceFacts& cuda_device_facts(const c10::Device& device);

// Whether the binary has code for the device. Asked of the driver once a device and process.
bool cuda_device_has_kernels(const c10::Device& device);

// What to tell a user whose kernel did not start: the error, and for a device that the binary has no code for, which
// architectures it has. `error` is a cudaError_t.
std::string launch_failure(const c10::Device& device, int error);
#endif

}  // namespace pmpp::ops
