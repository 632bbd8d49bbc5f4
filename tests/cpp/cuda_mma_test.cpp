// Every plan of mma against the oracle: each tile, k whole and in pieces, whatever `auto` would choose.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/tiled_matmul/launch.hpp"
#include "csrc/tiled_matmul/mma.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "tests/cpp/cuda_plans.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/cuda_tiles.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {
namespace {

using matmul::kMmaConfigs;
using matmul::kMmaTiles;
using matmul::MmaTile;
using matmul::Plan;
using matmul::Problem;

class CudaMma : public NeedsMma<::testing::TestWithParam<std::tuple<int, DType>>> {
 protected:
  int config() const { return std::get<0>(GetParam()); }
  const MmaTile& tile() const { return kMmaTiles[config()]; }
  DType dtype() const { return std::get<1>(GetParam()); }

  TestedTile tested() const {
    return {matmul::Algorithm::kMma, config(), dtype(), tile().m, tile().n, tile().k, tile().stages};
  }
  int check(const MatmulCase& spec) const { return tested().check(spec); }
};

INSTANTIATE_TEST_SUITE_P(All, CudaMma,
                         ::testing::Combine(::testing::Range(0, kMmaConfigs),
                                            ::testing::Values(DType::kFloat16, DType::kBFloat16)),
                         [](const auto& info) {
                           const MmaTile& tile = kMmaTiles[std::get<0>(info.param)];
                           return std::to_string(tile.m) + "x" + std::to_string(tile.n) + "x" + std::to_string(tile.k) +
                                  (tile.async ? "_async_" : "_registers_") + dtype_name(std::get<1>(info.param));
                         });

TEST_P(CudaMma, SizesAroundTheTile) {
  const int m = tile().m, n = tile().n, k = tile().k;
  check_each_size(dtype(),
                  {{1, 1, 1},
                   {m, n, k},
                   {m - 1, n + 1, k - 1},
                   {m + 1, n - 1, k + 1},
                   {m + 1, n + 1, 2 * k - 1},
                   {1, n, 3 * k + 1},
                   {m, 1, tile().stages * k},
                   {2 * m - 1, 2 * n + 3, (tile().stages + 2) * k + 5}},
                  [&](const MatmulCase& sized) {
                    check_each_order(sized, [&](MatmulCase spec) {
                      align_lines(spec);
                      EXPECT_GT(check(spec), 0);
                    });
                  });
}

// Element alignment of base and pitch of both operands, and of d in both orders.
TEST_P(CudaMma, EveryResidue) {
  if (tile().async) GTEST_SKIP() << "reads aligned operands only";
  for (int residue = 0; residue < 8; ++residue) {
    for (const int pad : {residue, 7 - residue, (5 * residue + 2) % 8}) {
      MatmulCase spec{dtype(), 67, 71, 77};
      spec.a_offset = residue, spec.b_offset = (3 * residue + 1) % 8;
      spec.a_pad = pad, spec.b_pad = (pad + residue) % 8, spec.d_pad = pad;
      spec.guard = residue;
      spec.d = pad % 2 == 0 ? Layout::kRowMajor : Layout::kColumnMajor;
      check_each_order(spec, [&](const MatmulCase& ordered) { EXPECT_GT(check(ordered), 0); });
      if (HasFailure()) return;
    }
  }
}

TEST_P(CudaMma, ResultsOfEveryAlignmentAndOrder) {
  for (int residue = 0; residue < 8; ++residue) {
    for (const Layout d : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kReversed}) {
      MatmulCase spec{dtype(), 40, 72, 64};
      spec.d = d, spec.d_pad = residue % 4 * 2, spec.guard = residue;
      EXPECT_GT(check(spec), 0);
      if (HasFailure()) return;
    }
  }
  for (const int d_pad : {0, 8, 4}) {  // 16-byte writes with a ragged end, and none
    MatmulCase spec{dtype(), 33, 75, 64};
    spec.b_pad = 5, spec.d_pad = 5 + d_pad, spec.guard = 8;
    EXPECT_GT(check(spec), 0);
  }
}

TEST_P(CudaMma, EpilogueBatchesAndPieces) {
  int count = 0;
  for (const Layout c : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSameRow, Layout::kSameElement}) {
    MatmulCase spec{dtype(), 72, 40, 264, 3};
    spec.c = c, spec.alpha = matmul::scalar(count % 2 == 0 ? 1 : -2), spec.beta = matmul::scalar(count - 3);
    spec.d = count % 2 == 0 ? Layout::kRowMajor : Layout::kColumnMajor;
    spec.a_batch = count == 1 ? BatchLayout::kShared : BatchLayout::kPacked;
    spec.b_batch = count == 2 ? BatchLayout::kReversed : BatchLayout::kPacked;
    spec.guard = count++ % 3 * 4;
    EXPECT_GE(check(spec), 3) << "whole, in two pieces, in three";
    if (HasFailure()) return;
  }
  for (const std::int64_t n : {37, 44}) {  // partial sums by the element and by four
    MatmulCase spec{dtype(), 21, n, 600};
    spec.fill = Fill::kPositiveIntegers;
    align_lines(spec);
    EXPECT_GE(check(spec), 3);
  }
}

TEST_P(CudaMma, RealValuesAndTheSameBitsTwice) {
  MatmulData data(real_case(dtype()));
  const DeviceCase on_device(data);
  check_same_bits_twice(tested(), on_device);
  check_plans(data, on_device, tested().plans(on_device));
}

TEST_P(CudaMma, OneBlockStridesOverEverything) {
  check_one_block(tested(), MatmulCase{dtype(), 2 * tile().m + 8, tile().n + 8, 3 * tile().k, 2});
}

TEST_P(CudaMma, MatchesTheOracle) {
  if (tile().async) GTEST_SKIP() << "reads aligned operands only";
  check_against_the_oracle(tested());
}

TEST_P(CudaMma, SpecialsReachTheirRowAndColumnOnly) { check_specials(tested()); }

TEST_P(CudaMma, RandomProblems) {
  check_random_problems(tested(), static_cast<std::uint64_t>(config()) + 1, 24, 300, tile().async);
}

TEST_P(CudaMma, ElementsBeyond32BitOffsets) { check_far_lines(tested(), {{true, false, true}}); }

TEST_P(CudaMma, IsCapturedOnItsStream) { check_capture(tested()); }

// A plan that reads by cp.async is refused for operands that do not lie so, before anything reaches CUDA.
TEST_P(CudaMma, MisalignedOperandsAreRefused) {
  if (!tile().async) GTEST_SKIP() << "reads operands of any alignment";
  MatmulData data(MatmulCase{dtype(), 16, 16, 16});
  const std::vector<Plan> plans = tested().plans(DeviceCase(data));
  ASSERT_FALSE(plans.empty());
  const DeviceMemory memory(4096);
  Problem problem = data.problem();
  problem.a.data = memory.at(0);
  problem.b.data = memory.at(2);
  problem.d.data = memory.at(2048);
  EXPECT_EQ(matmul::launch(plans[0], problem, test::current_device_facts(), nullptr, nullptr),
            cudaErrorMisalignedAddress);
}

}  // namespace
}  // namespace pmpp::test
