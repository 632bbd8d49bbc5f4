// What the tests of the choices share: problems and devices that are described but nowhere there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "csrc/common/device_facts.hpp"
#include "csrc/common/dtype.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::test {

inline const void* address(std::uintptr_t bytes) { return reinterpret_cast<const void*>(bytes); }

// Contiguous row-major matrices.
inline matmul::Problem contiguous_problem(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                                          std::int64_t batch = 1) {
  matmul::Problem p{};
  p.dtype = dtype;
  p.m = m, p.n = n, p.k = k, p.batch = batch;
  // Some sizes of the tests are beyond any memory: their strides wrap around, and nobody looks at them.
  const auto area = [](std::int64_t rows, std::int64_t cols) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(cols));
  };
  p.a = {nullptr, k, 1, area(m, k)};
  p.b = {nullptr, n, 1, area(k, n)};
  p.d = {nullptr, n, 1, area(m, n)};
  return p;
}

// An H200 but for what is named.
inline DeviceFacts device_of(int capability, int shared_opt_in = 227 * 1024) {
  DeviceFacts facts = h200_facts();
  facts.compute_capability = capability;
  facts.shared_memory_opt_in = shared_opt_in;
  return facts;
}
inline DeviceFacts device_of(int capability, int sm_count, int shared_opt_in) {
  DeviceFacts facts = device_of(capability, shared_opt_in);
  facts.sm_count = sm_count;
  return facts;
}
inline DeviceFacts device_with(int max_threads, int shared_memory) {
  DeviceFacts facts = h200_facts();
  facts.max_threads_per_block = max_threads;
  facts.shared_memory_per_block = shared_memory;
  return facts;
}

// In digits: the constants of csrc/ are themselves under test.
inline constexpr std::int64_t kLaunchLimitX = 2147483647;
inline constexpr std::int64_t kLaunchLimitYZ = 65535;

// What every launch of CUDA takes, of either operator.
template <class Plan>
void expect_launchable(const Plan& plan, const DeviceFacts& device) {
  EXPECT_TRUE(plan.is_cuda);
  EXPECT_GE(plan.block[0], 1);
  EXPECT_GE(plan.block[1], 1);
  EXPECT_LE(plan.block[0] * plan.block[1], device.max_threads_per_block);
  EXPECT_LE(plan.grid[0], kLaunchLimitX);
  EXPECT_LE(plan.grid[1], kLaunchLimitYZ);
  EXPECT_LE(plan.grid[2], kLaunchLimitYZ);
  EXPECT_GE(plan.workspace_bytes, 0);
}

// What the kernels of simt and mma take for granted of their launch, whatever the tile: whole steps of k in every piece
// but the last, none of them empty, room for their sums of `sum_bytes` each, and all blocks on x.
inline void expect_sound_pieces(const matmul::Plan& plan, const matmul::Problem& p, const DeviceFacts& device,
                                int sum_bytes, const std::string& what) {
  EXPECT_TRUE(plan.is_cuda) << what;
  EXPECT_LE(plan.block[0], device.max_threads_per_block) << what;
  EXPECT_LE(plan.dynamic_shared_bytes, device.shared_memory_opt_in) << what;
  EXPECT_GE(plan.splits, 1) << what;
  if (plan.splits > 1) {
    EXPECT_EQ(plan.split_k % plan.tile_k, 0) << what;
    EXPECT_GE(plan.split_k * plan.splits, p.k) << what;
    EXPECT_LT(plan.split_k * (plan.splits - 1), p.k) << what << ": the last piece is empty";
    EXPECT_EQ(plan.workspace_bytes, sum_bytes * plan.splits * p.batch * p.m * p.n) << what;
  } else {
    EXPECT_EQ(plan.split_k, p.k) << what;
    EXPECT_EQ(plan.workspace_bytes, 0) << what;
  }
  EXPECT_GE(plan.grid[0], 1) << what;
  EXPECT_LE(plan.grid[0], kMaxGridX) << what;
  EXPECT_EQ(plan.grid[1], 1) << what;
  EXPECT_EQ(plan.grid[2], 1) << what;
}

}  // namespace pmpp::test
