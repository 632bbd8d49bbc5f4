// The facts of a device, for selection.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "csrc/common/device_facts.hpp"

namespace pmpp::ops {

#ifdef PMPP_WITH_CUDA
// Read from the driver once a device and process, then a table look-up.
const DeviceFacts& cuda_device_facts(const c10::Device& device);

// What to tell a user whose kernel did not start: the error, and for a device that the binary has no code for, which
// architectures it has. `error` is a cudaError_t.
std::string launch_failure(const c10::Device& device, int error);
#endif

}  // namespace pmpp::ops
