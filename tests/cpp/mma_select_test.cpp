// Tiles and splits of mma, chosen without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "csrc/tiled_matmul/mma.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "tests/cpp/select_cases.hpp"

namespace pmpp::matmul {
namespace {

using test::device_of;

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = DType::kBFloat16,
                   std::int64_t batch = 1) {
  return test::contiguous_problem(dtype, m, n, k, batch);
}

void expect_sound(const Plan& plan, const Problem& p, const DeviceFacts& device) {
  const std::string what = to_string(plan) + " for " + to_string(p);
  ASSERT_EQ(plan.algorithm, Algorithm::kMma) << what;
  ASSERT_TRUE(plan.config >= 0 && plan.config < kMmaConfigs) << what;
  const MmaTile& tile = kMmaTiles[plan.config];
  EXPECT_EQ(plan.tile_m, tile.m) << what;
  EXPECT_EQ(plan.tile_n, tile.n) << what;
  EXPECT_EQ(plan.tile_k, tile.k) << what;
  EXPECT_EQ(plan.block[0] * plan.block[1], tile.threads()) << what;
  EXPECT_EQ(plan.stages, tile.stages) << what;
  test::expect_sound_pieces(plan, p, device, 4, what);
}

TEST(MmaSelect, NeedsAmpereAndFloats) {
  for (const DType dtype : kAllDTypes) {
    const bool has = dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat64 ||
                     dtype == DType::kComplex128;
    for (const int capability : {75, 80, 86, 89, 90, 100, 120}) {
      const DeviceFacts device = device_of(capability, 100, 99 * 1024);
      EXPECT_EQ(mma_plan(problem_of(64, 64, 64, dtype), device).has_value(), has && capability >= 80);
      EXPECT_EQ(select(problem_of(64, 64, 64, dtype), device, Algorithm::kMma).has_value(), has && capability >= 80);
      EXPECT_EQ(mma_plans(problem_of(64, 64, 64, dtype), device).empty(), !has || capability < 80);
    }
    EXPECT_FALSE(mma_plan(problem_of(64, 64, 64, dtype), cpu_facts(2)));
  }
  EXPECT_FALSE(mma_plan(problem_of(64, 64, 64), device_of(80, 100, 64 * 1024))) << "96 KiB a block are needed";
}

TEST(MmaSelect, AutoTakesItWhereThereIsNothingFaster) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 31;
  const DeviceFacts ada = device_of(89, 128, 99 * 1024);
  const auto chosen = [](const Problem& p, const DeviceFacts& device) {
    return select(p, device, Algorithm::kAuto)->algorithm;
  };
  EXPECT_EQ(chosen(problem_of(1000, 1000, 1000), ada), Algorithm::kMma);
  EXPECT_EQ(chosen(problem_of(1000, 1000, 1000, DType::kFloat16), ada), Algorithm::kMma);
  EXPECT_NE(chosen(problem_of(1000, 1000, 1000, DType::kFloat32), ada), Algorithm::kMma);
  EXPECT_NE(chosen(problem_of(kHuge, 1, 1), ada), Algorithm::kMma);
  EXPECT_NE(chosen(problem_of(1, 1, kHuge), ada), Algorithm::kMma);
  EXPECT_NE(chosen(problem_of(1000, 1000, 1000), device_of(75, 40, 64 * 1024)), Algorithm::kMma);
}

TEST(MmaSelect, EveryPlanIsSound) {
  for (const DeviceFacts& device : {h200_facts(), device_of(86, 28, 99 * 1024), device_of(80, 108, 163 * 1024)}) {
    for (const std::int64_t m : {1, 31, 64, 127, 129, 1000, 8192}) {
      for (const std::int64_t n : {1, 64, 255, 257, 4096, 50257}) {
        for (const std::int64_t k : {0, 1, 31, 33, 512, 1025, 65536}) {
          for (const std::int64_t batch : {1, 3}) {
            const Problem p = problem_of(m, n, k, DType::kFloat16, batch);
            const auto plan = mma_plan(p, device);
            ASSERT_TRUE(plan);
            expect_sound(*plan, p, device);
            for (const Plan& each : mma_plans(p, device)) expect_sound(each, p, device);
          }
        }
      }
    }
  }
}

TEST(MmaSelect, AlignedOperandsAreCopiedAsynchronouslyOthersGoThroughRegisters) {
  const auto is_async = [](const Problem& p) { return kMmaTiles[mma_plan(p, h200_facts())->config].async; };
  Problem p = problem_of(512, 512, 512);
  EXPECT_TRUE(is_async(p));
  EXPECT_FALSE(is_async(problem_of(512, 512, 513))) << "rows of a are off";
  EXPECT_FALSE(is_async(problem_of(512, 513, 512))) << "rows of b are off";
  p.a.data = test::address(8);
  EXPECT_FALSE(is_async(p));
  p = problem_of(512, 512, 512);
  p.b = {nullptr, 1, 512, 0};  // transposed
  EXPECT_TRUE(is_async(p));
  p.b = {nullptr, 1, 516, 0};
  EXPECT_FALSE(is_async(p));
  p.b = {nullptr, 1024, 2, 0};  // no unit stride
  EXPECT_FALSE(is_async(p));
  p = problem_of(512, 512, 512, DType::kBFloat16, 2);
  EXPECT_TRUE(is_async(p));
  p.a.batch_stride += 4;
  EXPECT_FALSE(is_async(p));
}

TEST(MmaSelect, OrderFollowsTheSmallerStride) {
  EXPECT_TRUE((MmaOperand{nullptr, 100, 1, 0}.along_k()));
  EXPECT_FALSE((MmaOperand{nullptr, 1, 100, 0}.along_k()));
  EXPECT_TRUE((MmaOperand{nullptr, 0, 1, 0}.along_k()));
  EXPECT_FALSE((MmaOperand{nullptr, 1, 0, 0}.along_k()));
  EXPECT_TRUE((MmaOperand{nullptr, -100, -1, 0}.along_k()));
  EXPECT_FALSE((MmaOperand{nullptr, 2, 100, 0}.along_k()));
}

TEST(MmaSelect, LargeProblemsGetLargeTilesSmallOnesManyBlocks) {
  const auto large = mma_plan(problem_of(8192, 8192, 8192), h200_facts());
  EXPECT_EQ(large->tile_m * large->tile_n, 128 * 256) << to_string(*large);
  EXPECT_EQ(large->splits, 1);
  const auto small = mma_plan(problem_of(256, 256, 256), h200_facts());
  EXPECT_LT(small->tile_m * small->tile_n, 128 * 128) << to_string(*small);
  EXPECT_EQ(small->splits, 1) << "too little k";
}

TEST(MmaSelect, LongSumsOfFewTilesAreSplit) {
  for (const std::int64_t size : {16, 128, 129}) {
    const auto plan = mma_plan(problem_of(size, size, 65536), h200_facts());
    EXPECT_GT(plan->splits, 1) << to_string(*plan);
    EXPECT_GE(plan->split_k, 512);
  }
  EXPECT_EQ(mma_plan(problem_of(8192, 8192, 65536), h200_facts())->splits, 1);
}

TEST(MmaSelect, ListsEveryTileWholeAndInPieces) {
  std::set<std::string> lines;
  std::set<int> configs;
  for (const Plan& plan : mma_plans(problem_of(300, 304, 1024), h200_facts())) {
    configs.insert(plan.config);
    lines.insert(to_string(plan));
  }
  EXPECT_EQ(configs.size(), static_cast<std::size_t>(kMmaConfigs));
  EXPECT_EQ(lines.size(), static_cast<std::size_t>(3 * kMmaConfigs)) << "different plans print differently";
  EXPECT_EQ(lines.count("mma 128x128x32 grid 9x1x1 block 128x1 shared 65536 config 1 stages 4"), 1u);
  EXPECT_EQ(lines.count("mma 128x128x32 grid 18x1x1 block 128x1 shared 65536 config 1 stages 4 splits 2 of 512"), 1u);
  for (const Plan& plan : mma_plans(problem_of(300, 301, 1024), h200_facts())) {
    EXPECT_FALSE(kMmaTiles[plan.config].async) << to_string(plan);
  }
}

TEST(MmaSelect, SizesBeyond32BitsStayWithinTheLaunch) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  for (const auto& p : {problem_of(kHuge, 3, 3), problem_of(3, kHuge, 3), problem_of(3, 3, kHuge),
                        problem_of(3, 3, 3, DType::kFloat16, kHuge), problem_of(65536, 65536, 7)}) {
    const auto plan = select(p, h200_facts(), Algorithm::kMma);
    ASSERT_TRUE(plan);
    expect_sound(*plan, p, h200_facts());
  }
}

}  // namespace
}  // namespace pmpp::matmul
