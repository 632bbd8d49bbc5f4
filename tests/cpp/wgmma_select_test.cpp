// Tiles, pieces of k and workspaces of wgmma, chosen without a GPU.
#include "csrc/tiled_matmul/select_wgmma.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/wgmma.hpp"
#include "tests/cpp/select_cases.hpp"

namespace pmpp::matmul {
namespace {

using test::address;
using test::device_of;

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = DType::kBFloat16,
                   std::int64_t batch = 1) {
  return test::contiguous_problem(dtype, m, n, k, batch);
}

// What the kernel takes for granted of its launch.
void expect_sound(const Plan& plan, const Problem& problem, const DeviceFacts& device) {
  const std::string what = to_string(plan) + " for " + to_string(problem);
  ASSERT_EQ(plan.algorithm, Algorithm::kWgmma) << what;
  ASSERT_TRUE(plan.is_cuda) << what;
  ASSERT_TRUE(plan.config >= 0 && plan.config < kWgmmaTileCount) << what;
  const WgmmaTile& tile = kWgmmaTiles[plan.config];
  const Problem p = wgmma_problem(problem, plan);
  EXPECT_EQ(plan.tile_m, tile.m) << what;
  EXPECT_EQ(plan.tile_n, tile.n) << what;
  EXPECT_EQ(plan.tile_k, kWgmmaK) << what;
  EXPECT_EQ(plan.stages, tile.stages) << what;
  EXPECT_EQ(plan.block[0], wgmma_threads(tile)) << what;
  EXPECT_EQ(plan.block[1], 1) << what;
  EXPECT_LE(plan.block[0], device.max_threads_per_block) << what;
  EXPECT_EQ(plan.dynamic_shared_bytes, wgmma_shared_bytes(tile)) << what;
  EXPECT_LE(plan.dynamic_shared_bytes, device.shared_memory_opt_in) << what;

  // Every step of k is in one piece, and no piece is empty.
  ASSERT_GE(plan.splits, 1) << what;
  EXPECT_EQ(plan.split_k % kWgmmaK, 0) << what;
  const std::int64_t k = p.k + (plan.is_a_displaced ? 7 : 0);  // up to 7 elements before the first
  EXPECT_GE(plan.split_k * plan.splits, k) << what;
  EXPECT_LT(plan.split_k * (plan.splits - 1), k) << what << ": the last piece is empty";

  if (splits_in_cluster(tile)) {
    EXPECT_EQ(plan.cluster, plan.splits) << what;
    EXPECT_GE(plan.cluster, 2) << what;
    EXPECT_LE(plan.cluster, kMaxKCluster) << what;
  } else {
    EXPECT_EQ(plan.cluster, tile.cluster) << what;
  }
  const std::int64_t row_tiles = round_up(ceil_div(p.m, tile.m), splits_in_cluster(tile) ? 1 : plan.cluster);
  const std::int64_t items = row_tiles * ceil_div(p.n, tile.n) * p.batch * plan.splits;
  EXPECT_LE(items, std::numeric_limits<std::int32_t>::max()) << what;

  // The tail is the last wave, of whole clusters; every step of its k is in one piece, and no piece is empty.
  const bool has_tail = plan.tail_tiles > 0;
  if (has_tail) {
    EXPECT_TRUE(wgmma_has_tail(tile)) << what;
    ASSERT_FALSE(splits_in_cluster(tile)) << what;
    const std::int64_t slots = std::int64_t{device.sm_count} / tile.cluster * tile.cluster * tile.per_sm;
    EXPECT_EQ(plan.splits, 1) << what;
    EXPECT_EQ(plan.tail_tiles, items % slots) << what;
    EXPECT_EQ(plan.tail_tiles % plan.cluster, 0) << what;
    EXPECT_GE(plan.tail_splits, 2) << what;
    EXPECT_EQ(plan.tail_k % kWgmmaK, 0) << what;
    EXPECT_GE(plan.tail_k * plan.tail_splits, k) << what;
    EXPECT_LT(plan.tail_k * (plan.tail_splits - 1), k) << what << ": the last piece is empty";
    EXPECT_LE(plan.grid[0], slots) << what;
  } else {
    EXPECT_EQ(plan.tail_splits, 1) << what;
  }
  const std::int64_t tail_pieces = plan.tail_tiles * plan.tail_splits;
  EXPECT_GE(plan.grid[0], 1) << what;
  EXPECT_EQ(plan.grid[0] % plan.cluster, 0) << what << ": whole clusters";
  EXPECT_LE(plan.grid[0], items - plan.tail_tiles + tail_pieces) << what << ": a block without work";
  if (splits_in_cluster(tile)) {
    EXPECT_EQ(plan.grid[0], items) << what << ": a block does one piece";
  }
  EXPECT_EQ(plan.grid[1], 1) << what;
  EXPECT_EQ(plan.grid[2], 1) << what;

  EXPECT_EQ(plan.is_a_packed || plan.is_a_realigned || plan.is_a_displaced, !view_a(p).is_addressable) << what;
  EXPECT_LE(plan.is_a_packed + plan.is_a_realigned + plan.is_a_displaced, 1) << what;
  EXPECT_EQ(plan.is_b_packed || plan.is_b_realigned, !view_b(p).is_addressable) << what;
  const WgmmaWorkspace workspace = wgmma_workspace(problem, plan);
  EXPECT_EQ(plan.workspace_bytes, workspace.bytes) << what;
  const bool has_partial = plan.splits > 1 && !splits_in_cluster(tile);
  const auto packed = [&](bool is_packed, const OperandView& view, std::int64_t lines) {
    return is_packed ? 2 * view.pitch * (view.is_mn_major ? p.k : lines) * (view.is_batched ? p.batch : 1) : 0;
  };
  EXPECT_GE(workspace.packed_a, has_partial ? partial_bytes(p, plan.splits) : 0) << what;
  EXPECT_GE(workspace.arrivals, tail_pieces * tile.m * tile.n * 4) << what;
  EXPECT_GE(workspace.packed_a - workspace.arrivals, plan.tail_tiles * wgmma_consumers(tile) * 8) << what;
  EXPECT_EQ(workspace.arrivals % 8, 0) << what;
  EXPECT_GE(workspace.packed_b - workspace.packed_a, packed(plan.is_a_packed, view_a(p), p.m)) << what;
  EXPECT_GE(workspace.bytes - workspace.packed_b, packed(plan.is_b_packed, view_b(p), p.n)) << what;
  EXPECT_EQ(workspace.packed_a % 16, 0) << what;
  EXPECT_EQ(workspace.packed_b % 16, 0) << what;
  if (!has_partial && !has_tail && !plan.is_a_packed && !plan.is_b_packed) {
    EXPECT_EQ(plan.workspace_bytes, 0) << what;
  }
}

TEST(WgmmaSelect, NeedsHopperAndSixteenBitFloats) {
  for (const DType dtype : kAllDTypes) {
    const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
    for (const int capability : {75, 80, 89, 90, 100, 120}) {
      const DeviceFacts device = device_of(capability);
      const Problem p = problem_of(64, 64, 64, dtype);
      EXPECT_EQ(wgmma_available(dtype, device), half && capability == 90);
      EXPECT_EQ(select(p, device, Algorithm::kWgmma).has_value(), half && capability == 90);
      EXPECT_EQ(wgmma_plans(p, device).empty(), !half || capability != 90);
    }
    EXPECT_FALSE(wgmma_available(dtype, device_of(90, 227 * 1024 - 1)));
    EXPECT_FALSE(wgmma_available(dtype, cpu_facts(2)));
  }
}

TEST(WgmmaSelect, AutoTakesWgmmaOnHopperMmaElsewhereAndNeitherForOthers) {
  const auto chosen = [](const Problem& p, const DeviceFacts& device) {
    return select(p, device, Algorithm::kAuto)->algorithm;
  };
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const std::int64_t size : {1, 128, 1001, 4096}) {
      EXPECT_EQ(chosen(problem_of(size, size, size, dtype), device_of(90)), Algorithm::kWgmma) << size;
      EXPECT_EQ(chosen(problem_of(size, size, size, dtype), device_of(80)), Algorithm::kMma) << size;
      EXPECT_EQ(chosen(problem_of(size, size, size, dtype), device_of(100)), Algorithm::kMma) << size;
    }
  }
  EXPECT_EQ(chosen(problem_of(1024, 1024, 1024, DType::kInt32), device_of(90)), Algorithm::kSimt);
  EXPECT_EQ(chosen(problem_of(8, 8, 8, DType::kInt8), device_of(90)), Algorithm::kSimt);
}

// Nothing to multiply, and sizes beyond its 32-bit coordinates: `auto` falls back on what takes them.
TEST(WgmmaSelect, EmptyAndHugeProblemsAreForOthers) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 31;
  for (const Problem& p :
       {problem_of(0, 5, 3), problem_of(5, 0, 3), problem_of(5, 5, 0), problem_of(5, 5, 5, DType::kFloat16, 0),
        problem_of(kHuge, 3, 3), problem_of(3, kHuge, 3), problem_of(3, 3, kHuge),
        problem_of(3, 3, 3, DType::kFloat16, kHuge), problem_of(kHuge - 4096, kHuge - 4096, 64)}) {
    EXPECT_FALSE(wgmma_plan(p, h200_facts())) << to_string(p);
    EXPECT_TRUE(wgmma_plans(p, h200_facts()).empty()) << to_string(p);
    EXPECT_FALSE(select(p, h200_facts(), Algorithm::kWgmma)) << to_string(p);
    const auto plan = select(p, h200_facts(), Algorithm::kAuto);
    ASSERT_TRUE(plan) << to_string(p);
    EXPECT_EQ(plan->algorithm, Algorithm::kSimt) << to_string(*plan);
  }
  for (const Problem& p :
       {problem_of(kHuge - 4096, 8, 64), problem_of(8, kHuge - 4096, 64), problem_of(8, 8, kHuge - 4096)}) {
    const auto plan = wgmma_plan(p, h200_facts());
    ASSERT_TRUE(plan) << to_string(p);
    expect_sound(*plan, p, h200_facts());
  }
}

TEST(WgmmaSelect, EveryPlanIsSound) {
  DeviceFacts few = device_of(90);
  few.sm_count = 78;
  for (const DeviceFacts& device : {h200_facts(), few}) {
    for (const std::int64_t m : {1, 63, 64, 129, 1000, 8192}) {
      for (const std::int64_t n : {1, 64, 193, 257, 4096, 50257}) {
        for (const std::int64_t k : {1, 64, 65, 505, 1025, 65536}) {
          for (const std::int64_t batch : {1, 3}) {
            Problem p = problem_of(m, n, k, DType::kFloat16, batch);
            if (m % 2 == 0) p.d = {nullptr, 1, m, m * n};
            const auto plan = wgmma_plan(p, device);
            ASSERT_TRUE(plan) << to_string(p);
            expect_sound(*plan, p, device);
            for (const Plan& each : wgmma_plans(p, device)) expect_sound(each, p, device);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(WgmmaSelect, ListsEveryTileWithEveryNumberOfPieces) {
  std::set<std::string> lines;
  std::set<std::pair<int, int>> found, expected, with_tail, expected_with_tail;
  const std::vector<Plan> plans = wgmma_plans(problem_of(300, 304, 505), h200_facts());
  for (const Plan& plan : plans) {
    found.emplace(plan.config, plan.splits);
    if (plan.tail_tiles > 0) with_tail.emplace(plan.config, plan.tail_splits);
    lines.insert(to_string(plan));
  }
  for (int config = 0; config < kWgmmaTileCount; ++config) {
    for (const int splits : {1, 2, 3, 4, 8}) {
      if (splits > 1 || !splits_in_cluster(kWgmmaTiles[config])) expected.emplace(config, splits);
    }
    if (wgmma_has_tail(kWgmmaTiles[config])) expected_with_tail.emplace(config, 2);
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(with_tail, expected_with_tail) << "all of a small product is its last wave";
  EXPECT_EQ(lines.size(), plans.size()) << "different plans print differently";
  for (const Plan& plan : wgmma_plans(problem_of(300, 304, 64), h200_facts())) EXPECT_EQ(plan.splits, 1);
}

TEST(WgmmaSelect, APlanPrintsItsClusterItsPiecesAndItsCopies) {
  const std::vector<Plan> plans = wgmma_plans(problem_of(300, 305, 511), h200_facts());
  const auto in_cluster = std::find_if(plans.begin(), plans.end(), [](const Plan& plan) {
    return splits_in_cluster(kWgmmaTiles[plan.config]) && plan.splits == 4;
  });
  ASSERT_NE(in_cluster, plans.end());
  const std::string line = to_string(*in_cluster);
  EXPECT_EQ(line.rfind("wgmma " + std::to_string(in_cluster->tile_m) + "x", 0), 0u) << line;
  EXPECT_NE(line.find(" cluster 4 splits 4 of 128 a packed b packed"), std::string::npos) << line;
}

// 40 x 20 tiles of 128 x 256 are six waves of 132 and 8 tiles: as the seventh they would leave 124 multiprocessors
// idle.
TEST(WgmmaSelect, TheLastTilesAreCutWhereTheyLeaveMostOfTheGpuIdle) {
  const Problem p = problem_of(5000, 5000, 5000);
  const auto plan = wgmma_plan(p, h200_facts());
  ASSERT_TRUE(plan);
  expect_sound(*plan, p, h200_facts());
  EXPECT_EQ(plan->tail_tiles, 8) << to_string(*plan);
  EXPECT_GT(plan->tail_splits, 4) << to_string(*plan);
  const std::string tail = " tail 8 in " + std::to_string(plan->tail_splits) + " of " + std::to_string(plan->tail_k);
  EXPECT_NE(to_string(*plan).find(tail), std::string::npos) << to_string(*plan);
  for (const Problem& whole : {problem_of(4096, 4096, 4096), problem_of(8192, 8192, 64), problem_of(64, 64, 65536)}) {
    EXPECT_EQ(wgmma_plan(whole, h200_facts())->tail_tiles, 0) << to_string(whole);
  }

  std::set<std::int64_t> pieces;
  for (const Plan& each : wgmma_plans(p, h200_facts())) {
    expect_sound(each, p, h200_facts());
    if (each.config == plan->config && each.tail_tiles > 0) pieces.insert(each.tail_splits);
  }
  EXPECT_EQ(pieces.count(plan->tail_splits), 1u) << "the chosen plan is one of those that tests run";
}

TEST(WgmmaSelect, LongSumsOfFewTilesAreCutLargeResultsAreNot) {
  for (const std::int64_t size : {16, 128, 129}) {
    EXPECT_GT(wgmma_plan(problem_of(size, size, 65536), h200_facts())->splits, 1) << size;
  }
  EXPECT_EQ(wgmma_plan(problem_of(8192, 8192, 65536), h200_facts())->splits, 1);
  EXPECT_EQ(wgmma_plan(problem_of(64, 64, 64), h200_facts())->splits, 1);
}

// ---- what TMA can address

// The view of an a of 100 lines by 200 of k, with these strides.
OperandView view_of(std::int64_t line_stride, std::int64_t k_stride, const void* data = nullptr, std::int64_t batch = 1,
                    std::int64_t batch_stride = 0) {
  Problem p = problem_of(100, 8, 200, DType::kFloat16, batch);
  p.a = {data, line_stride, k_stride, batch_stride};
  return view_a(p);
}

TEST(WgmmaViews, EitherOrderIsReadWhereItLies) {
  const OperandView by_k = view_of(200, 1);
  EXPECT_TRUE(by_k.is_addressable);
  EXPECT_FALSE(by_k.is_mn_major);
  EXPECT_EQ(by_k.pitch, 200);
  EXPECT_EQ(view_of(1024, 1).pitch, 1024);
  const OperandView by_lines = view_of(1, 104);
  EXPECT_TRUE(by_lines.is_addressable);
  EXPECT_TRUE(by_lines.is_mn_major);
  EXPECT_EQ(by_lines.pitch, 104);

  Problem p = problem_of(8, 104, 200);  // b's lines are its columns
  EXPECT_TRUE(view_b(p).is_mn_major);
  EXPECT_TRUE(view_b(p).is_addressable);
  p.b = {nullptr, 1, 200, 0};
  EXPECT_FALSE(view_b(p).is_mn_major);
  EXPECT_TRUE(view_b(p).is_addressable);
  EXPECT_EQ(view_b(p).pitch, 200);
}

TEST(WgmmaViews, WhatIsOffSixteenBytesIsPacked) {
  for (std::uintptr_t bytes = 0; bytes < 16; bytes += 2) {
    EXPECT_EQ(view_of(200, 1, address(4096 + bytes)).is_addressable, bytes == 0) << bytes;
    EXPECT_EQ(view_of(1, 104, address(4096 + bytes)).is_addressable, bytes == 0) << bytes;
  }
  for (std::int64_t extra = 0; extra < 8; ++extra) {
    EXPECT_EQ(view_of(200 + extra, 1).is_addressable, extra == 0) << extra;
    EXPECT_EQ(view_of(1, 104 + extra).is_addressable, extra == 0) << extra;
  }
}

TEST(WgmmaViews, StridesThatTmaDoesNotHaveArePacked) {
  EXPECT_FALSE(view_of(400, 2).is_addressable) << "no unit stride";
  EXPECT_FALSE(view_of(2, 208).is_addressable);
  EXPECT_FALSE(view_of(0, 1).is_addressable) << "one line repeated";
  EXPECT_FALSE(view_of(1, 0).is_addressable);
  EXPECT_FALSE(view_of(0, 0).is_addressable);
  EXPECT_FALSE(view_of(-200, 1).is_addressable);
  EXPECT_FALSE(view_of(-200, -1).is_addressable);
  EXPECT_FALSE(view_of(192, 1).is_addressable) << "lines that share elements";
  EXPECT_TRUE(view_of((std::int64_t{1} << 38) - 8, 1).is_addressable);
  EXPECT_FALSE(view_of(std::int64_t{1} << 38, 1).is_addressable) << "2^39 bytes and more";
}

TEST(WgmmaViews, CopiesKeepTheOrderAndStartLinesOn128Bytes) {
  const OperandView by_k = view_of(400, 2);
  EXPECT_FALSE(by_k.is_mn_major);
  EXPECT_EQ(by_k.pitch, 256);
  EXPECT_EQ(by_k.batch_pitch, 256 * 100);
  const OperandView by_lines = view_of(1, 101);
  EXPECT_TRUE(by_lines.is_mn_major);
  EXPECT_EQ(by_lines.pitch, 128);
  EXPECT_EQ(by_lines.batch_pitch, 128 * 200);
}

TEST(WgmmaViews, ASingleLineHasNoPitch) {
  Problem p = problem_of(1, 8, 200);
  p.a = {nullptr, 3, 1, 0};
  EXPECT_TRUE(view_a(p).is_addressable);
  EXPECT_EQ(view_a(p).pitch % 8, 0);
  EXPECT_GE(view_a(p).pitch, 200);
  p = problem_of(100, 8, 1);
  p.a = {nullptr, 1, 77, 0};
  EXPECT_TRUE(view_a(p).is_addressable);
  EXPECT_EQ(view_a(p).pitch % 8, 0);
  EXPECT_GE(view_a(p).pitch, 100);
}

TEST(WgmmaViews, OneMatrixForTheWholeBatchIsNotBatched) {
  EXPECT_FALSE(view_of(200, 1, nullptr, 3, 0).is_batched);
  EXPECT_FALSE(view_of(200, 1, nullptr, 1, 20000).is_batched);
  const OperandView batched = view_of(200, 1, nullptr, 3, 20000);
  EXPECT_TRUE(batched.is_batched);
  EXPECT_TRUE(batched.is_addressable);
  EXPECT_EQ(batched.batch_pitch, 20000);
  EXPECT_FALSE(view_of(200, 1, nullptr, 3, 20004).is_addressable);
  EXPECT_FALSE(view_of(200, 1, nullptr, 3, -20000).is_addressable) << "TMA has no negative pitch";
  EXPECT_TRUE(view_of(600, 1, nullptr, 3, 200).is_addressable) << "a line of each matrix in turn";
}

TEST(WgmmaViews, AResultIsStoredByTmaWhereItsRowsAllow) {
  Problem p = problem_of(100, 104, 64);
  EXPECT_TRUE(stores_by_tma(p));
  p.d.data = reinterpret_cast<void*>(std::uintptr_t{4096 + 8});
  EXPECT_FALSE(stores_by_tma(p));
  EXPECT_FALSE(stores_by_tma(problem_of(100, 105, 64)));
  EXPECT_TRUE(stores_by_tma(problem_of(1, 104, 64))) << "a single row has no pitch";
  EXPECT_FALSE(stores_by_tma(problem_of(1, 105, 64))) << "TMA would write up to the next 16 bytes";
  p = problem_of(100, 104, 64);
  p.d = {nullptr, 208, 2, 0};
  EXPECT_FALSE(stores_by_tma(p));
  p = problem_of(100, 104, 64, DType::kFloat16, 2);
  EXPECT_TRUE(stores_by_tma(p));
  p.d.batch_stride += 4;
  EXPECT_FALSE(stores_by_tma(p));
  p.d.batch_stride = -100 * 104;
  EXPECT_FALSE(stores_by_tma(p)) << "TMA has no negative pitch";
}

// ---- results that lie column by column, and short sides

constexpr WgmmaTile kWideTile = {128, 256, 4, 1, 1};
constexpr WgmmaTile kThinTile = {64, 32, 12, 1, 1};

TEST(WgmmaProblem, AResultByColumnsIsTheTransposedProduct) {
  Problem p = problem_of(100, 200, 300);
  p.a = {address(1 << 12), 300, 1, 11};
  p.b = {address(2 << 12), 200, 1, 22};
  p.c = {address(3 << 12), 0, 1, 33};
  p.d = {nullptr, 1, 104, 44};
  const Problem swapped = wgmma_problem(p, kWideTile);
  EXPECT_EQ(swapped.m, 200);
  EXPECT_EQ(swapped.n, 100);
  EXPECT_EQ(swapped.k, 300);
  EXPECT_EQ(swapped.a.data, p.b.data);
  EXPECT_EQ(swapped.a.row_stride, 1);
  EXPECT_EQ(swapped.a.col_stride, 200);
  EXPECT_EQ(swapped.a.batch_stride, 22);
  EXPECT_EQ(swapped.b.data, p.a.data);
  EXPECT_EQ(swapped.b.row_stride, 1);
  EXPECT_EQ(swapped.b.col_stride, 300);
  EXPECT_EQ(swapped.c.row_stride, 1);
  EXPECT_EQ(swapped.c.col_stride, 0);
  EXPECT_EQ(swapped.d.row_stride, 104);
  EXPECT_EQ(swapped.d.col_stride, 1);
  EXPECT_EQ(swapped.d.batch_stride, 44);
  EXPECT_EQ(to_string(wgmma_problem(swapped, kWideTile)), to_string(swapped)) << "once is enough";
}

TEST(WgmmaProblem, OtherResultsStayAsTheyAre) {
  for (const Result& d : {Result{nullptr, 200, 1, 0}, Result{nullptr, 1, 1, 0}, Result{nullptr, 400, 2, 0},
                          Result{nullptr, -200, -1, 0}}) {
    Problem p = problem_of(100, 200, 300);
    p.d = d;
    EXPECT_EQ(to_string(wgmma_problem(p, kWideTile)), to_string(p));
  }
}

TEST(WgmmaProblem, TheShortSideIsTheThinTilesOwn) {
  for (const auto& [m, n] : {std::pair{16, 4096}, {4096, 16}, {16, 16}}) {
    for (const Result& d : {Result{nullptr, n, 1, 0}, Result{nullptr, 1, m, 0}}) {
      Problem p = problem_of(m, n, 300);
      p.d = d;
      const Problem thin = wgmma_problem(p, kThinTile);
      EXPECT_EQ(thin.n, 16);
      EXPECT_EQ(to_string(thin), to_string(m < n ? exchanged(p) : p));
    }
  }
}

// Rows `period` apart are a matrix each, with the rows of c and d that belong to them; b serves all.
TEST(WgmmaDisplaced, RowsEquallyFarOffAreTheBatch) {
  const std::pair<std::int64_t, std::int64_t> periods[] = {{201, 8}, {202, 4}, {204, 2}, {203, 8}};
  for (const auto& [pitch, period] : periods) {
    Problem p = problem_of(80, 64, 200);
    p.a = {address(4096 + 6), pitch, 1, 0};
    p.c = {address(8192), 64, 1, 0};
    const std::optional<Problem> displaced = displaced_problem(p);
    ASSERT_TRUE(displaced) << pitch;
    EXPECT_EQ(displaced->m, 80 / period);
    EXPECT_EQ(displaced->batch, period);
    EXPECT_EQ(displaced->a.row_stride, period * pitch);
    EXPECT_EQ(displaced->a.row_stride % 8, 0) << "what TMA needs";
    EXPECT_EQ(displaced->a.batch_stride, pitch);
    EXPECT_EQ(displaced->b.batch_stride, 0);
    for (const auto& [rows, batch] : {std::pair{displaced->c.row_stride, displaced->c.batch_stride},
                                      std::pair{displaced->d.row_stride, displaced->d.batch_stride}}) {
      EXPECT_EQ(rows, period * 64);
      EXPECT_EQ(batch, 64);
    }
    EXPECT_EQ(elements_off_boundary(p.a, p.dtype), 3);
  }
  Problem off = problem_of(81, 64, 200);  // every row as far off as the first
  off.a.data = address(4096 + 2);
  ASSERT_TRUE(displaced_problem(off));
  EXPECT_EQ(displaced_problem(off)->batch, 1);
  EXPECT_EQ(displaced_problem(off)->m, 81);
}

TEST(WgmmaDisplaced, WhatDoesNotComeOutEvenIsNotDisplaced) {
  EXPECT_TRUE(displaced_problem(problem_of(80, 64, 201)));
  EXPECT_FALSE(displaced_problem(problem_of(80, 64, 200))) << "TMA can address it";
  EXPECT_FALSE(displaced_problem(problem_of(81, 64, 201))) << "rows left over";
  EXPECT_FALSE(displaced_problem(problem_of(80, 64, 201, DType::kBFloat16, 2))) << "a batch already";
  EXPECT_FALSE(displaced_problem(problem_of(80, 64, 201, DType::kFloat32)));
  EXPECT_FALSE(displaced_problem(problem_of(80, 64, (std::int64_t{1} << 28) + 1))) << "32-bit coordinates";
  Problem p = problem_of(80, 64, 201);
  p.b = {nullptr, 1, 208, 0};
  EXPECT_FALSE(displaced_problem(p)) << "b along k cannot move along k";
  p = problem_of(80, 64, 201);
  p.a = {nullptr, 1, 81, 0};
  EXPECT_FALSE(displaced_problem(p)) << "a along m";
  p.a = {nullptr, 0, 1, 0};
  EXPECT_FALSE(displaced_problem(p)) << "one row repeated";
  p.a = {nullptr, -201, 1, 0};
  EXPECT_FALSE(displaced_problem(p));
}

TEST(WgmmaDisplaced, OddKIsNotCopiedWhereTheCopyCostsMore) {
  for (const std::int64_t k : {4033, 4041, 4097, 4159}) {
    const auto plan = wgmma_plan(problem_of(4096, 4096, k), h200_facts());
    EXPECT_TRUE(plan->is_a_displaced) << to_string(*plan);
    EXPECT_EQ(plan->workspace_bytes, 0) << to_string(*plan);
    EXPECT_NE(to_string(*plan).find(" a displaced"), std::string::npos) << to_string(*plan);
  }
  EXPECT_FALSE(wgmma_plan(problem_of(4096, 4096, 4096), h200_facts())->is_a_displaced);
}

TEST(WgmmaSelect, ThinTilesServeShortSides) {
  for (const Plan& plan : wgmma_plans(problem_of(16, 4096, 4096), h200_facts())) {
    if (plan.tile_n < 64) {
      // A cluster for each tile, or persistent blocks.
      const std::int64_t items = 4096 / plan.tile_m * plan.splits;
      const bool in_cluster = splits_in_cluster(kWgmmaTiles[plan.config]);
      EXPECT_EQ(plan.grid[0], in_cluster ? items : std::min<std::int64_t>(items, 132)) << to_string(plan);
    }
  }
}

}  // namespace
}  // namespace pmpp::matmul
