// Every plan of mma in float64 and complex128 against the oracle: each tile, k whole and in pieces, whatever `auto`
// would choose.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "csrc/tiled_matmul/mma64.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "tests/cpp/cuda_tiles.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {
namespace {

using matmul::kMma64Configs;
using matmul::kMma64K;
using matmul::kMma64Tiles;
using matmul::Mma64Tile;

class CudaMma64 : public NeedsMma<::testing::TestWithParam<int>> {
 protected:
  int config() const { return GetParam(); }
  const Mma64Tile& tile() const { return kMma64Tiles[config()]; }
  DType dtype() const { return tile().planes == 1 ? DType::kFloat64 : DType::kComplex128; }

  TestedTile tested() const {
    return {matmul::Algorithm::kMma, config(), dtype(), tile().m, tile().n, kMma64K, tile().stages};
  }
};

INSTANTIATE_TEST_SUITE_P(All, CudaMma64, ::testing::Range(0, kMma64Configs), [](const auto& info) {
  const Mma64Tile& tile = kMma64Tiles[info.param];
  return std::to_string(info.param) + "_" + std::to_string(tile.m) + "x" + std::to_string(tile.n) +
         (tile.planes == 1 ? "_float64" : "_complex128");
});

TEST_P(CudaMma64, SizesAroundTheTile) { check_sizes_around(tested()); }

TEST_P(CudaMma64, ResultsOfEveryAlignmentAndOrder) { check_results_of_every_alignment(tested()); }

TEST_P(CudaMma64, EpilogueBatchesAndPieces) { check_epilogue_and_batches(tested(), 3); }

TEST_P(CudaMma64, TheSameBitsTwice) {
  MatmulData data(real_case(dtype()));
  check_same_bits_twice(tested(), DeviceCase(data));
}

TEST_P(CudaMma64, OneBlockStridesOverEverything) {
  check_one_block(tested(), MatmulCase{dtype(), tile().m + 8, tile().n + 8, 3 * kMma64K, 2});
}

TEST_P(CudaMma64, MatchesTheOracle) { check_against_the_oracle(tested()); }

TEST_P(CudaMma64, SpecialsReachTheirRowAndColumnOnly) { check_specials(tested()); }

TEST_P(CudaMma64, RandomProblems) {
  check_random_problems(tested(), static_cast<std::uint64_t>(config()) + 1, 16, 200);
}

TEST_P(CudaMma64, IsCapturedOnItsStream) { check_capture(tested()); }

// In every order of the operands.
TEST_P(CudaMma64, ElementsBeyond32BitOffsets) {
  if (dtype() != DType::kFloat64) GTEST_SKIP() << "as float64";
  check_far_lines(tested(), {{true, true, false}, {true, false, false}, {false, true, false}, {false, false, false}});
}

}  // namespace
}  // namespace pmpp::test
