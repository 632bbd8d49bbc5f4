// Device memory and device facts for the CUDA kernel tests. CUDA runtime and GoogleTest only.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/common/device_facts.hpp"

#define PMPP_ASSERT_CUDA(call) ASSERT_EQ(cudaSuccess, (call)) << cudaGetErrorString(cudaPeekAtLastError())

namespace pmpp::test {

inline bool has_cuda_device() {
  static const bool found = [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  }();
  return found;
}

// Tests of this fixture are skipped, with the reason, on a machine without a GPU.
template <class Base>
class NeedsCuda : public Base {
 protected:
  void SetUp() override {
    if (!has_cuda_device()) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

inline DeviceFacts current_device_facts() {
  const auto attribute = [](cudaDeviceAttr which) {
    int value = 0;
    EXPECT_EQ(cudaSuccess, cudaDeviceGetAttribute(&value, which, 0));
    return value;
  };
  DeviceFacts facts;
  facts.is_cuda = true;
  facts.compute_capability =
      10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
  facts.sm_count = attribute(cudaDevAttrMultiProcessorCount);
  facts.shared_memory_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlock);
  facts.shared_memory_opt_in = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  facts.max_threads_per_block = attribute(cudaDevAttrMaxThreadsPerBlock);
  return facts;
}

// An allocation of exactly the bytes asked for, so that memcheck sees the first byte past the end. Null when empty or
// when there is no memory left.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    if (bytes > 0 && cudaMalloc(&data_, bytes) != cudaSuccess) {
      data_ = nullptr;
      cudaGetLastError();  // the failure is in the null pointer; the next check must not find it
    }
  }
  // A copy of host bytes, so that everything in it is initialised.
  explicit DeviceMemory(const std::vector<std::byte>& host) : DeviceMemory(host.size()) {
    if (!host.empty()) {
      EXPECT_EQ(cudaSuccess, cudaMemcpy(data_, host.data(), host.size(), cudaMemcpyHostToDevice));
    }
  }
  // The same without the first bytes, which stay uninitialised: initcheck sees a read of them.
  DeviceMemory(const std::vector<std::byte>& host, std::size_t skipped) : DeviceMemory(host.size()) {
    if (host.size() > skipped) {
      EXPECT_EQ(cudaSuccess, cudaMemcpy(at(static_cast<std::int64_t>(skipped)), host.data() + skipped,
                                        host.size() - skipped, cudaMemcpyHostToDevice));
    }
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data_); }

  void* at(std::int64_t offset_bytes) const {
    return data_ == nullptr ? nullptr : static_cast<std::byte*>(data_) + offset_bytes;
  }
  void write(const std::vector<std::byte>& host) const {
    if (!host.empty()) {
      EXPECT_EQ(cudaSuccess, cudaMemcpy(data_, host.data(), host.size(), cudaMemcpyHostToDevice));
    }
  }
  void read(std::vector<std::byte>& host) const {
    if (!host.empty()) {
      EXPECT_EQ(cudaSuccess, cudaMemcpy(host.data(), data_, host.size(), cudaMemcpyDeviceToHost));
    }
  }

 private:
  void* data_ = nullptr;
};

}  // namespace pmpp::test
