#include "csrc/padded_transpose/select.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "csrc/common/int_math.hpp"

namespace pmpp::transposition {
namespace {

constexpr std::int64_t kLaunchLimitX = 2147483647;
constexpr std::int64_t kLaunchLimitYZ = 65535;
constexpr int kElementSizes[] = {1, 2, 4, 8, 16};
constexpr Algorithm kCudaLadder[] = {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded, Algorithm::kPadded16};
constexpr Algorithm kCpuLadder[] = {Algorithm::kNaive, Algorithm::kBlocked};

Problem problem_of(std::int64_t m, std::int64_t n, int element_size = 4, std::int64_t batch = 1) {
  Problem p{};
  p.element_size = element_size;
  p.m = m, p.n = n, p.batch = batch;
  p.in_row_stride = n, p.in_col_stride = 1, p.in_batch_stride = m * n;
  p.out_row_stride = m, p.out_col_stride = 1, p.out_batch_stride = m * n;
  return p;
}

DeviceFacts device_with(int max_threads, int shared_memory) {
  DeviceFacts facts = h200_facts();
  facts.max_threads_per_block = max_threads;
  facts.shared_memory_per_block = shared_memory;
  return facts;
}

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

TEST(TransposeNames, RoundTripAndAreThoseOfTheContract) {
  const std::pair<Algorithm, const char*> expected[] = {
      {Algorithm::kAuto, "auto"},     {Algorithm::kNaive, "naive"},       {Algorithm::kShared, "shared"},
      {Algorithm::kPadded, "padded"}, {Algorithm::kPadded16, "padded16"}, {Algorithm::kBlocked, "blocked"}};
  for (const auto& [algorithm, name] : expected) {
    EXPECT_STREQ(algorithm_name(algorithm), name);
    EXPECT_EQ(parse_algorithm(name), algorithm);
  }
  for (const char* name : {"", "fast", "Padded", "padded ", "padded1", "padded166", "tiled"}) {
    EXPECT_EQ(parse_algorithm(name), std::nullopt) << "'" << name << "'";
  }
}

TEST(TransposeAlgorithms, ListTheLadderInOrder) {
  for (const int size : kElementSizes) {
    EXPECT_EQ(algorithms(size, h200_facts()), std::vector<Algorithm>(std::begin(kCudaLadder), std::end(kCudaLadder)));
    EXPECT_EQ(algorithms(size, cpu_facts(4)), std::vector<Algorithm>(std::begin(kCpuLadder), std::end(kCpuLadder)));
  }
}

TEST(TransposeAlgorithms, NoneForOtherElementSizes) {
  for (const int size : {0, 3, 5, 6, 7, 12, 15, 17, 32, -1}) {
    for (const DeviceFacts& device : {cpu_facts(2), h200_facts()}) {
      EXPECT_TRUE(algorithms(size, device).empty()) << size;
      for (const Algorithm algorithm : kAllAlgorithms) {
        EXPECT_FALSE(select(problem_of(5, 6, size), device, algorithm)) << size << " " << algorithm_name(algorithm);
      }
    }
  }
}

// What is listed can be selected, and what can be selected is listed.
TEST(TransposeAlgorithms, AgreeWithSelect) {
  for (const DeviceFacts& device : {cpu_facts(1), h200_facts(), device_with(128, 49152), device_with(1024, 2048),
                                    device_with(64, 49152), device_with(1024, 0)}) {
    for (const int size : kElementSizes) {
      const std::vector<Algorithm> listed = algorithms(size, device);
      for (const Algorithm algorithm : kAllAlgorithms) {
        if (algorithm == Algorithm::kAuto) {
          continue;
        }
        const bool expected = std::find(listed.begin(), listed.end(), algorithm) != listed.end();
        const auto plan = select(problem_of(33, 34, size), device, algorithm);
        EXPECT_EQ(plan.has_value(), expected) << algorithm_name(algorithm) << " " << size;
        if (plan) {
          EXPECT_EQ(plan->algorithm, algorithm);
        }
      }
    }
  }
}

TEST(TransposeSelect, RefusesTheOtherDevicesAlgorithms) {
  for (const Algorithm algorithm : {Algorithm::kShared, Algorithm::kPadded, Algorithm::kPadded16}) {
    EXPECT_FALSE(select(problem_of(8, 8), cpu_facts(2), algorithm)) << algorithm_name(algorithm);
  }
  EXPECT_FALSE(select(problem_of(8, 8), h200_facts(), Algorithm::kBlocked));
}

TEST(TransposeSelect, AutoTakesWhatTheDeviceCanDo) {
  EXPECT_EQ(select(problem_of(8, 8), cpu_facts(2), Algorithm::kAuto)->algorithm, Algorithm::kBlocked);
  for (const int size : kElementSizes) {
    EXPECT_EQ(select(problem_of(8, 8, size), h200_facts(), Algorithm::kAuto)->algorithm, Algorithm::kPadded) << size;
  }
  // Without shared memory only naive is left, and with too few threads nothing is.
  EXPECT_EQ(select(problem_of(8, 8), device_with(1024, 0), Algorithm::kAuto)->algorithm, Algorithm::kNaive);
  EXPECT_FALSE(select(problem_of(8, 8), device_with(64, 49152), Algorithm::kAuto));
}

// The widths and paddings of the contract: 32 x 32, 32 x 33 and 16 x 17.
TEST(TransposeSelect, TilesAreThoseOfTheContract) {
  const auto shared = select(problem_of(100, 200), h200_facts(), Algorithm::kShared);
  const auto padded = select(problem_of(100, 200), h200_facts(), Algorithm::kPadded);
  const auto padded16 = select(problem_of(100, 200), h200_facts(), Algorithm::kPadded16);
  ASSERT_TRUE(shared && padded && padded16);
  EXPECT_EQ(std::make_tuple(shared->tile_m, shared->tile_n, shared->padding), std::make_tuple(32, 32, 0));
  EXPECT_EQ(std::make_tuple(padded->tile_m, padded->tile_n, padded->padding), std::make_tuple(32, 32, 1));
  EXPECT_EQ(std::make_tuple(padded16->tile_m, padded16->tile_n, padded16->padding), std::make_tuple(16, 16, 1));
}

TEST(TransposeSelect, SharedMemoryDecides) {
  // 32 x 32 x 4 = 4096 bytes without padding, 32 x 33 x 4 = 4224 with it, 16 x 17 x 4 = 1088 for the small tile.
  const struct {
    int shared_memory;
    std::vector<Algorithm> expected;
  } cases[] = {
      {4224, {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded, Algorithm::kPadded16}},
      {4223, {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded16}},
      {4096, {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded16}},
      {4095, {Algorithm::kNaive, Algorithm::kPadded16}},
      {1088, {Algorithm::kNaive, Algorithm::kPadded16}},
      {1087, {Algorithm::kNaive}},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(algorithms(4, device_with(1024, c.shared_memory)), c.expected) << c.shared_memory;
  }
}

TEST(TransposeSelect, GridsCoverEveryTile) {
  for (const Algorithm algorithm : kCudaLadder) {
    for (const int size : kElementSizes) {
      for (const std::int64_t m : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 1000}) {
        for (const std::int64_t n : {1, 16, 17, 31, 32, 33, 65}) {
          const auto plan = select(problem_of(m, n, size, 3), h200_facts(), algorithm);
          ASSERT_TRUE(plan);
          expect_launchable(*plan, h200_facts());
          EXPECT_EQ(plan->grid[0], (m + plan->tile_m - 1) / plan->tile_m) << "m " << m;
          EXPECT_EQ(plan->grid[1], (n + plan->tile_n - 1) / plan->tile_n) << "n " << n;
          EXPECT_EQ(plan->grid[2], 3);
          EXPECT_EQ(plan->tile_n, plan->block[0]);
        }
      }
    }
  }
}

TEST(TransposeSelect, LargeSizesStayWithinTheLaunchLimits) {
  const std::int64_t huge = std::int64_t{1} << 40;
  for (const Algorithm algorithm : kCudaLadder) {
    for (const auto& p : {problem_of(huge, 3), problem_of(3, huge), problem_of(3, 3, 1, huge), problem_of(65536, 65536),
                          problem_of(3, 65535 * 32 + 1)}) {
      const auto plan = select(p, h200_facts(), algorithm);
      ASSERT_TRUE(plan) << to_string(p);
      expect_launchable(*plan, h200_facts());
      for (const std::int64_t extent : plan->grid) {
        EXPECT_GE(extent, 1) << to_string(*plan);
      }
    }
    const auto rows = select(problem_of(5000000, 3), h200_facts(), algorithm);
    ASSERT_TRUE(rows);
    EXPECT_GT(rows->grid[0], kLaunchLimitYZ);
    EXPECT_EQ(rows->grid[0], ceil_div(5000000, rows->tile_m));
  }
}

TEST(TransposeSelect, EmptyProblemsHaveAPlan) {
  for (const DeviceFacts& device : {cpu_facts(3), h200_facts()}) {
    for (const Algorithm algorithm : algorithms(4, device)) {
      for (const auto& p : {problem_of(0, 5), problem_of(5, 0), problem_of(0, 0), problem_of(5, 5, 4, 0)}) {
        const auto plan = select(p, device, algorithm);
        ASSERT_TRUE(plan) << to_string(p);
        EXPECT_EQ(plan->tasks, 0) << to_string(p);
      }
    }
  }
}

TEST(TransposeSelect, CpuTasksCoverTheMatrix) {
  for (const Algorithm algorithm : kCpuLadder) {
    for (const auto& [m, n] : {std::pair<int, int>{1, 1}, {31, 33}, {256, 32}, {257, 33}, {1000, 3}}) {
      const auto plan = select(problem_of(m, n, 8, 3), cpu_facts(4), algorithm);
      ASSERT_TRUE(plan);
      EXPECT_FALSE(plan->is_cuda);
      ASSERT_GT(plan->tile_m, 0);
      ASSERT_GT(plan->tile_n, 0);
      EXPECT_EQ(plan->tasks, 3 * ceil_div(m, plan->tile_m) * ceil_div(n, plan->tile_n));
    }
  }
}

TEST(TransposePrinting, APlanIsOneLineThatNamesTheAlgorithmAndTheLaunch) {
  std::set<std::string> lines;
  for (const DeviceFacts& device : {cpu_facts(3), h200_facts()}) {
    for (const Algorithm algorithm : algorithms(4, device)) {
      const auto plan = select(problem_of(100, 200), device, algorithm);
      ASSERT_TRUE(plan);
      const std::string line = to_string(*plan);
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      EXPECT_EQ(line.rfind(std::string(algorithm_name(algorithm)) + " ", 0), 0u) << line;
      lines.insert(line);
    }
  }
  EXPECT_EQ(lines.size(), 6u) << "different plans print differently";
  EXPECT_EQ(lines.count("padded 32x32+1 grid 4x7x1 block 32x8"), 1u);
  EXPECT_EQ(lines.count("padded16 16x16+1 grid 7x13x1 block 16x8"), 1u);
}

TEST(TransposePrinting, AProblemIsOneLineWithItsSizes) {
  const std::string line = to_string(problem_of(101, 202, 16, 7));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  for (const char* part : {"16", "101", "202", "7"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in: " << line;
  }
}

}  // namespace
}  // namespace pmpp::transposition
