// Tiles and splits of simt, chosen without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "csrc/tiled_matmul/select_simt.hpp"
#include "csrc/tiled_matmul/simt.hpp"
#include "tests/cpp/select_cases.hpp"

namespace pmpp::matmul {
namespace {

using test::device_of;

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = DType::kFloat32,
                   std::int64_t batch = 1) {
  return test::contiguous_problem(dtype, m, n, k, batch);
}

void expect_sound(const Plan& plan, const Problem& problem, const DeviceFacts& device) {
  const Problem p = simt_problem(problem);
  const std::string what = to_string(plan) + " for " + to_string(problem);
  ASSERT_EQ(plan.algorithm, Algorithm::kSimt) << what;
  ASSERT_TRUE(plan.config >= 0 && plan.config < kSimtConfigs) << what;
  const SimtTile& tile = kSimtTiles[plan.config];
  const SimtElement element = simt_element(p.dtype);
  EXPECT_TRUE(has_dtype(tile, p.dtype)) << what;
  EXPECT_EQ(plan.tile_m, tile.m()) << what;
  EXPECT_EQ(plan.tile_n, tile.n()) << what;
  EXPECT_EQ(plan.tile_k, tile.k) << what;
  EXPECT_EQ(plan.block[0] * plan.block[1], tile.threads()) << what;
  EXPECT_GE(plan.dynamic_shared_bytes, plan.stages * simt_stage_bytes(tile, element)) << what;
  EXPECT_EQ(plan.stages, element.async ? tile.stages : 2) << what;
  EXPECT_LT(plan.split_k, std::int64_t{1} << 31) << what << ": the kernel counts k in 32 bits";
  test::expect_sound_pieces(plan, p, device, accumulator_size(p.dtype), what);
}

TEST(SimtSelect, EveryDTypeOnEveryDeviceWithRoomForABlock) {
  for (const DType dtype : kAllDTypes) {
    for (const int capability : {75, 80, 86, 89, 90, 100, 120}) {
      EXPECT_TRUE(has_simt(dtype, device_of(capability, 100, 64 * 1024))) << dtype_name(dtype);
      const auto plan = select(problem_of(64, 64, 64, dtype), device_of(capability, 100, 64 * 1024), Algorithm::kSimt);
      ASSERT_TRUE(plan) << dtype_name(dtype);
      EXPECT_EQ(plan->algorithm, Algorithm::kSimt);
    }
    EXPECT_FALSE(has_simt(dtype, device_of(90, 100, 16 * 1024)));
    EXPECT_FALSE(simt_plan(problem_of(64, 64, 64, dtype), device_of(90, 100, 16 * 1024)));
    EXPECT_TRUE(simt_plans(problem_of(64, 64, 64, dtype), device_of(90, 100, 16 * 1024)).empty());
    EXPECT_FALSE(has_simt(dtype, cpu_facts(2)));
    EXPECT_TRUE(simt_plans(problem_of(64, 64, 64, dtype), cpu_facts(2)).empty());
  }
}

TEST(SimtSelect, EveryPlanIsSound) {
  for (const DeviceFacts& device : {h200_facts(), device_of(86, 28, 99 * 1024), device_of(75, 40, 64 * 1024)}) {
    for (const DType dtype : kAllDTypes) {
      for (const std::int64_t m : {1, 31, 127, 129, 1000, 8192}) {
        for (const std::int64_t n : {1, 64, 257, 50257}) {
          for (const std::int64_t k : {0, 1, 33, 512, 65537}) {
            const Problem p = problem_of(m, n, k, dtype, m % 2 == 0 ? 3 : 1);
            const auto plan = simt_plan(p, device);
            ASSERT_TRUE(plan);
            expect_sound(*plan, p, device);
            for (const Plan& each : simt_plans(p, device)) expect_sound(each, p, device);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(SimtSelect, WhatSharedMemoryHoldsIsWhatTheKernelNeeds) {
  EXPECT_EQ(simt_element(DType::kFloat32).real_bytes, 4);
  EXPECT_EQ(simt_element(DType::kInt8).real_bytes, 4);
  EXPECT_EQ(simt_element(DType::kComplex64).real_bytes, 4);
  EXPECT_EQ(simt_element(DType::kComplex64).planes, 2);
  EXPECT_EQ(simt_element(DType::kComplex128).real_bytes, 8);
  EXPECT_EQ(simt_element(DType::kInt64).planes, 1);
  EXPECT_FALSE(simt_element(DType::kBFloat16).async) << "is widened on its way";
  EXPECT_TRUE(simt_element(DType::kFloat64).async);
  for (const DType dtype : kAllDTypes) {
    const SimtElement element = simt_element(dtype);
    for (const int mn : {16, 32, 64, 128, 256}) {
      EXPECT_EQ(simt_line_bytes(mn, element) % 16, 0) << "lines are read 16 bytes at a time";
      // Eight threads along k, four or two along m or n, as far as the banks reach.
      std::set<int> banks;
      const int side = 16 / element.real_bytes;
      for (int k = 0; k < 8; ++k) {
        for (int i = 0; i < side; ++i) banks.insert((k * simt_line_bytes(mn, element) + i * element.real_bytes) % 128);
      }
      EXPECT_EQ(banks.size(), static_cast<std::size_t>(8 * side)) << dtype_name(dtype) << " " << mn;
    }
  }
}

TEST(SimtSelect, OrderFollowsTheUnitStrideAndTheAlignment) {
  const auto order = [](std::int64_t mn, std::int64_t k, std::uintptr_t at = 0, std::int64_t batch_stride = 0) {
    return simt_order({test::address(at), mn, k, batch_stride}, batch_stride == 0 ? 1 : 2);
  };
  EXPECT_EQ(order(100, 1), SimtOrder::kAlongK);
  EXPECT_EQ(order(0, 1), SimtOrder::kAlongK);
  EXPECT_EQ(order(1, 100), SimtOrder::kPieces);
  EXPECT_EQ(order(1, 0), SimtOrder::kPieces);
  EXPECT_EQ(order(1, 101), SimtOrder::kAlongMN);
  EXPECT_EQ(order(1, 100, 4), SimtOrder::kAlongMN);
  EXPECT_EQ(order(1, 100, 16, 400), SimtOrder::kPieces);
  EXPECT_EQ(order(1, 100, 16, 401), SimtOrder::kAlongMN);
  EXPECT_EQ(order(2, 100), SimtOrder::kAlongMN);
  EXPECT_EQ(order(0, 0), SimtOrder::kAlongMN);
  EXPECT_EQ(order(-100, -1), SimtOrder::kAlongMN);
  EXPECT_EQ(order(1, 1, 4), SimtOrder::kAlongK);
}

TEST(SimtSelect, ResultsInColumnsAreComputedAsTheirTranspose) {
  Problem p = problem_of(30, 50, 70);
  EXPECT_EQ(to_string(simt_problem(p)), to_string(p));
  p.d = {nullptr, 1, 30, 0};
  EXPECT_EQ(to_string(simt_problem(p)), to_string(exchanged(p)));
  EXPECT_EQ(to_string(simt_problem(simt_problem(p))), to_string(simt_problem(p)));
  p = problem_of(30, 1, 70);
  EXPECT_EQ(simt_problem(p).n, 30) << "one column";
  p = problem_of(1, 1, 70);
  EXPECT_EQ(to_string(simt_problem(p)), to_string(p));
}

TEST(SimtSelect, LargeProblemsGetLargeTilesSmallOnesManyBlocks) {
  const auto large = simt_plan(problem_of(8192, 8192, 8192), h200_facts());
  EXPECT_GE(large->tile_m * large->tile_n, 128 * 128) << to_string(*large);
  EXPECT_EQ(large->splits, 1);
  const auto small = simt_plan(problem_of(256, 256, 256), h200_facts());
  EXPECT_LE(small->tile_m * small->tile_n, 64 * 64) << to_string(*small);
}

TEST(SimtSelect, LongSumsOfFewTilesAreSplit) {
  for (const DType dtype : {DType::kFloat32, DType::kComplex128, DType::kInt8}) {
    for (const std::int64_t size : {16, 128, 129}) {
      const auto plan = simt_plan(problem_of(size, size, 65536, dtype), h200_facts());
      EXPECT_GT(plan->splits, 8) << to_string(*plan);
      EXPECT_GE(plan->grid[0], 66) << to_string(*plan);
    }
    EXPECT_EQ(simt_plan(problem_of(8192, 8192, 65536, dtype), h200_facts())->splits, 1);
  }
}

TEST(SimtSelect, ListsEveryTileWholeAndInPieces) {
  for (const DType dtype : kAllDTypes) {
    std::set<std::string> lines;
    std::set<int> configs;
    const auto expected = std::count_if(std::begin(kSimtTiles), std::end(kSimtTiles),
                                        [&](const SimtTile& tile) { return has_dtype(tile, dtype); });
    EXPECT_GE(expected, 2) << "a large and a small tile";
    for (const Plan& plan : simt_plans(problem_of(300, 304, 1024, dtype), h200_facts())) {
      configs.insert(plan.config);
      lines.insert(to_string(plan));
    }
    EXPECT_EQ(static_cast<std::ptrdiff_t>(configs.size()), expected) << dtype_name(dtype);
    EXPECT_EQ(static_cast<std::ptrdiff_t>(lines.size()), 4 * expected) << "different plans print differently";
  }
}

// Also a k that the kernel's 32-bit counters cannot take whole.
TEST(SimtSelect, SizesBeyond32BitsStayWithinTheLaunch) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 36;
  for (const auto& p : {problem_of(kHuge, 3, 3), problem_of(3, kHuge, 3), problem_of(3, 3, kHuge),
                        problem_of(3, 3, 3, DType::kInt16, kHuge), problem_of(65536, 65536, 7)}) {
    const auto plan = select(p, h200_facts(), Algorithm::kSimt);
    ASSERT_TRUE(plan);
    expect_sound(*plan, p, h200_facts());
    EXPECT_FALSE(simt_plans(p, h200_facts()).empty());
  }
  EXPECT_FALSE(simt_takes(problem_of(kHuge, kHuge, kHuge), h200_facts()));
  EXPECT_FALSE(select(problem_of(kHuge, kHuge, kHuge), h200_facts(), Algorithm::kSimt));
  EXPECT_TRUE(simt_plans(problem_of(kHuge, kHuge, kHuge), h200_facts()).empty());
}

}  // namespace
}  // namespace pmpp::matmul
