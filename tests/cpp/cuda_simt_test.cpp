// Every plan of simt against the oracle: each tile of each dtype, k whole and in pieces, whatever `auto` would choose.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/simt.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/cuda_tiles.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {
namespace {

using matmul::kSimtConfigs;
using matmul::kSimtTiles;
using matmul::SimtTile;

std::vector<std::pair<int, DType>> all_kernels() {
  std::vector<std::pair<int, DType>> kernels;
  for (int config = 0; config < kSimtConfigs; ++config) {
    for (const DType dtype : kAllDTypes) {
      if (has_dtype(kSimtTiles[config], dtype)) kernels.emplace_back(config, dtype);
    }
  }
  return kernels;
}

class CudaSimt : public NeedsCuda<::testing::TestWithParam<std::pair<int, DType>>> {
 protected:
  int config() const { return GetParam().first; }
  const SimtTile& tile() const { return kSimtTiles[config()]; }
  DType dtype() const { return GetParam().second; }

  TestedTile tested() const {
    return {matmul::Algorithm::kSimt, config(), dtype(), tile().m(), tile().n(), tile().k, tile().stages};
  }
};

INSTANTIATE_TEST_SUITE_P(All, CudaSimt, ::testing::ValuesIn(all_kernels()), [](const auto& info) {
  const SimtTile& tile = kSimtTiles[info.param.first];
  return std::to_string(info.param.first) + "_" + std::to_string(tile.m()) + "x" + std::to_string(tile.n()) + "x" +
         std::to_string(tile.k) + "_" + dtype_name(info.param.second);
});

TEST_P(CudaSimt, SizesAroundTheTile) { check_sizes_around(tested()); }

TEST_P(CudaSimt, ResultsOfEveryAlignmentAndOrder) { check_results_of_every_alignment(tested()); }

TEST_P(CudaSimt, EpilogueBatchesAndPieces) { check_epilogue_and_batches(tested(), 4); }

TEST_P(CudaSimt, TheSameBitsTwice) {
  MatmulData data(real_case(dtype()));
  check_same_bits_twice(tested(), DeviceCase(data));
}

TEST_P(CudaSimt, OneBlockStridesOverEverything) {
  check_one_block(tested(), MatmulCase{dtype(), tile().m() + 8, tile().n() + 8, 3 * tile().k, 2});
}

TEST_P(CudaSimt, MatchesTheOracle) { check_against_the_oracle(tested()); }

TEST_P(CudaSimt, SpecialsReachTheirRowAndColumnOnly) {
  if (is_integer(dtype())) GTEST_SKIP() << "integers have none";
  check_specials(tested());
}

TEST_P(CudaSimt, RandomProblems) {
  check_random_problems(tested(), static_cast<std::uint64_t>(config()) * 16 + static_cast<std::uint64_t>(dtype()) + 1,
                        16, 200);
}

TEST_P(CudaSimt, IsCapturedOnItsStream) { check_capture(tested()); }

// In every order that float32 kernels are compiled for.
TEST_P(CudaSimt, ElementsBeyond32BitOffsets) {
  if (dtype() != DType::kFloat32 && dtype() != DType::kInt8) GTEST_SKIP() << "one of each loader";
  check_far_lines(tested(), {{true, true, false}, {true, false, false}, {false, true, false}, {false, false, false}});
}

}  // namespace
}  // namespace pmpp::test
