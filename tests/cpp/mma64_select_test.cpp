// Tiles and splits of mma in float64 and complex128, chosen without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "csrc/tiled_matmul/mma64.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/select_mma64.hpp"
#include "tests/cpp/select_cases.hpp"

namespace pmpp::matmul {
namespace {

constexpr DType kDTypes[] = {DType::kFloat64, DType::kComplex128};

using test::device_of;

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = DType::kFloat64,
                   std::int64_t batch = 1) {
  return test::contiguous_problem(dtype, m, n, k, batch);
}

void expect_sound(const Plan& plan, const Problem& p, const DeviceFacts& device) {
  const std::string what = to_string(plan) + " for " + to_string(p);
  ASSERT_EQ(plan.algorithm, Algorithm::kMma) << what;
  ASSERT_TRUE(plan.config >= 0 && plan.config < kMma64Configs) << what;
  const Mma64Tile& tile = kMma64Tiles[plan.config];
  EXPECT_EQ(tile.planes, mma64_planes(p.dtype)) << what;
  EXPECT_EQ(plan.tile_m, tile.m) << what;
  EXPECT_EQ(plan.tile_n, tile.n) << what;
  EXPECT_EQ(plan.block[0] * plan.block[1], tile.threads()) << what;
  test::expect_sound_pieces(plan, p, device, 8 * tile.planes, what);
}

TEST(Mma64Select, PlansAreSound) {
  for (const DType dtype : kDTypes) {
    for (const std::int64_t size : {1, 15, 16, 33, 128, 1000, 5000}) {
      for (const std::int64_t k : {0, 1, 16, 17, 1000, 65536}) {
        for (const std::int64_t batch : {1, 3}) {
          for (const DeviceFacts& device : {h200_facts(), device_of(89, 99 * 1024)}) {
            const Problem p = problem_of(size, size + 1, k, dtype, batch);
            const auto chosen = mma64_plan(p, device);
            ASSERT_TRUE(chosen.has_value());
            expect_sound(*chosen, p, device);
            for (const Plan& plan : mma64_plans(p, device)) expect_sound(plan, p, device);
          }
        }
      }
    }
  }
}

TEST(Mma64Select, EveryTileIsThere) {
  for (const DType dtype : kDTypes) {
    std::set<int> found, expected;
    for (const Plan& plan : mma64_plans(problem_of(300, 300, 300, dtype), h200_facts())) found.insert(plan.config);
    for (int config = 0; config < kMma64Configs; ++config) {
      if (kMma64Tiles[config].planes == mma64_planes(dtype)) expected.insert(config);
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(Mma64Select, SplitsOnlyWhereMultiprocessorsAreIdle) {
  EXPECT_GT(mma64_plan(problem_of(64, 64, 65536), h200_facts())->splits, 1);
  EXPECT_EQ(mma64_plan(problem_of(4096, 4096, 65536), h200_facts())->splits, 1);
  EXPECT_EQ(mma64_plan(problem_of(64, 64, 32), h200_facts())->splits, 1);
}

TEST(Mma64Select, AutoTakesItOnGpusForComputing) {
  const auto chosen = [](const Problem& p, const DeviceFacts& device) {
    return select(p, device, Algorithm::kAuto)->algorithm;
  };
  for (const DType dtype : kDTypes) {
    for (const int capability : {80, 90, 100}) {
      EXPECT_EQ(chosen(problem_of(512, 512, 512, dtype), device_of(capability)), Algorithm::kMma) << capability;
      EXPECT_EQ(chosen(problem_of(8, 512, 512, dtype), device_of(capability)), Algorithm::kSimt) << capability;
    }
    for (const int capability : {75, 86, 89, 120}) {
      EXPECT_EQ(chosen(problem_of(512, 512, 512, dtype), device_of(capability)), Algorithm::kSimt) << capability;
    }
  }
}

// Half a warp's 16 numbers of 8 bytes are in as many pairs of banks: 4 of mn for 4 of k, as products read them, and 16
// of k for one of mn, as copies along k write them.
TEST(Mma64Select, NumbersOfHalfAWarpMeetInNoBank) {
  for (const int lines : {32, 64, 128}) {
    for (int k0 = 0; k0 < kMma64K; k0 += 4) {
      for (int mn0 = 0; mn0 < lines; mn0 += 4) {
        std::set<int> banks;
        for (int i = 0; i < 16; ++i) banks.insert(mma64_at(k0 + i % 4, mn0 + i / 4, lines) % 16);
        EXPECT_EQ(banks.size(), 16u) << k0 << " " << mn0;
      }
    }
    std::set<int> places;
    for (int mn = 0; mn < lines; ++mn) {
      std::set<int> banks;
      for (int k = 0; k < kMma64K; ++k) {
        banks.insert(mma64_at(k, mn, lines) % 16);
        places.insert(mma64_at(k, mn, lines));
      }
      EXPECT_EQ(banks.size(), 16u) << mn;
    }
    EXPECT_EQ(static_cast<int>(places.size()), lines * kMma64K) << "two numbers in one place";
    EXPECT_LT(*places.rbegin(), lines * kMma64K);
  }
}

}  // namespace
}  // namespace pmpp::matmul
