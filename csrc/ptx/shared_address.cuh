// The address of shared memory as inline PTX takes it.
#pragma once

#include <cstdint>

namespace pmpp::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace pmpp::ptx
