// Every plan of mma in float64 and complex128 against the oracle: each tile, k whole and in pieces, whatever `auto`
// would choose.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "csrc/tiled_matmul/launch.hpp"
#include "csrc/tiled_matmul/mma64.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/select_mma64.hpp"
#include "tests/cpp/cuda_plans.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {
namespace {

using matmul::kMma64Configs;
using matmul::kMma64K;
using matmul::kMma64Tiles;
using matmul::Mma64Tile;
using matmul::Plan;
using matmul::Problem;

constexpr Layout kOrders[] = {Layout::kRowMajor, Layout::kColumnMajor};

std::vector<Plan> plans_of(const DeviceCase& on_device, int config) {
  std::vector<Plan> plans = on_device.plans(matmul::Algorithm::kMma);
  std::erase_if(plans, [&](const Plan& plan) { return plan.config != config; });
  return plans;
}

// Runs a case with every plan of the tile; returns how many there are.
int check_config(MatmulData& data, int config) {
  const DeviceCase on_device(data);
  const std::vector<Plan> plans = plans_of(on_device, config);
  check_plans(data, on_device, plans);
  return static_cast<int>(plans.size());
}
int check_config(const MatmulCase& spec, int config) {
  MatmulData data(spec);
  return check_config(data, config);
}

class CudaMma64 : public NeedsCuda<::testing::TestWithParam<int>> {
 protected:
  void SetUp() override {
    NeedsCuda::SetUp();
    if (!IsSkipped() && current_device_facts().compute_capability < 80) {
      GTEST_SKIP() << "mma needs compute capability 8.0";
    }
  }
  int config() const { return GetParam(); }
  const Mma64Tile& tile() const { return kMma64Tiles[config()]; }
  DType dtype() const { return tile().planes == 1 ? DType::kFloat64 : DType::kComplex128; }

  // The case in all four orders of a and b, on multiples of 16 bytes and off them.
  void check_orders(MatmulCase spec) {
    for (const Layout a : kOrders) {
      for (const Layout b : kOrders) {
        spec.a = a, spec.b = b;
        spec.a_offset = spec.b_offset = 0;
        align_lines(spec);
        EXPECT_GT(check_config(spec, config()), 0);
        spec.a_pad += 1, spec.b_pad += 3, spec.a_offset = 1, spec.b_offset = 2;
        EXPECT_GT(check_config(spec, config()), 0);
        if (HasFailure()) return;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, CudaMma64, ::testing::Range(0, kMma64Configs), [](const auto& info) {
  const Mma64Tile& tile = kMma64Tiles[info.param];
  return std::to_string(info.param) + "_" + std::to_string(tile.m) + "x" + std::to_string(tile.n) +
         (tile.planes == 1 ? "_float64" : "_complex128");
});

TEST_P(CudaMma64, SizesAroundTheTile) {
  const int m = tile().m, n = tile().n, k = kMma64K;
  const std::int64_t sizes[][3] = {{1, 1, 1},
                                   {m, n, k},
                                   {m - 1, n + 1, k - 1},
                                   {m + 1, n - 1, k + 1},
                                   {1, n, 3 * k + 1},
                                   {m, 1, tile().stages * k},
                                   {m + 3, n + 5, (tile().stages + 2) * k + 5}};
  int count = 0;
  for (const auto& [rows, cols, inner] : sizes) {
    MatmulCase spec{dtype(), rows, cols, inner};
    spec.guard = count++ % 2 * 3;
    check_orders(spec);
    if (HasFailure()) return;
  }
}

TEST_P(CudaMma64, ResultsOfEveryAlignmentAndOrder) {
  for (int residue = 0; residue < 8; ++residue) {
    for (const Layout d : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kReversed}) {
      MatmulCase spec{dtype(), 40, 71 + residue % 2, 33};
      spec.d = d, spec.d_pad = residue % 4 * 2 + residue % 2, spec.guard = residue;
      EXPECT_GT(check_config(spec, config()), 0);
      if (HasFailure()) return;
    }
  }
}

TEST_P(CudaMma64, EpilogueBatchesAndPieces) {
  int count = 0;
  for (const Layout c : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSameRow, Layout::kSameElement}) {
    MatmulCase spec{dtype(), 37, count % 2 == 0 ? 44 : 41, 12 * kMma64K - 3, 3};
    spec.c = c, spec.alpha = matmul::scalar(count % 2 == 0 ? 1 : 2), spec.beta = matmul::scalar(count + 1);
    spec.d = count % 2 == 0 ? Layout::kRowMajor : Layout::kColumnMajor;
    spec.a_batch = count == 1 ? BatchLayout::kShared : BatchLayout::kPacked;
    spec.b_batch = count == 2 ? BatchLayout::kReversed : BatchLayout::kPacked;
    spec.guard = count++ % 3 * 4;
    EXPECT_EQ(check_config(spec, config()), 3) << "whole, in two pieces and in three";
    if (HasFailure()) return;
  }
}

TEST_P(CudaMma64, TheSameBitsTwice) {
  MatmulCase spec{dtype(), 136, 264, 328};
  spec.fill = Fill::kReal;
  MatmulData data(spec);
  const DeviceCase on_device(data);
  for (const Plan& plan : plans_of(on_device, config())) {
    std::vector<std::byte> once, again;
    on_device.run(plan, once);
    on_device.run(plan, again);
    EXPECT_EQ(once, again) << to_string(plan);
  }
}

// A plan with a single block must still do everything.
TEST_P(CudaMma64, OneBlockStridesOverEverything) {
  MatmulCase spec{dtype(), tile().m + 8, tile().n + 8, 3 * kMma64K, 2};
  MatmulData data(spec);
  const DeviceCase on_device(data);
  std::vector<Plan> plans = plans_of(on_device, config());
  for (Plan& plan : plans) plan.grid[0] = 1;
  check_plans(data, on_device, plans);
}

// All strides, sizes of 0 and 1, NaN and infinities: what every algorithm must do.
TEST_P(CudaMma64, MatchesTheOracle) {
  for (std::size_t index = 0; index < 2; ++index) {
    const Execute any_plan = [&](MatmulData& data) {
      const DeviceCase on_device(data);
      const std::vector<Plan> plans = plans_of(on_device, config());
      ASSERT_FALSE(plans.empty());
      on_device.run(plans[index % plans.size()], data.d.storage);
    };
    check_everything(any_plan, dtype(), {kMma64K});
  }
}

// NaN in an operand's neighbours, and in what lies past the end of k, must not reach the result; infinities must.
TEST_P(CudaMma64, SpecialsReachTheirRowAndColumnOnly) {
  for (const long double special :
       {std::numeric_limits<long double>::quiet_NaN(), std::numeric_limits<long double>::infinity()}) {
    MatmulCase spec{dtype(), 24, 40, 72};
    spec.fill = Fill::kPositiveIntegers;
    MatmulData data(spec);
    store(dtype(), data.a.address(0, 23, 71), {special, 0, 0});
    store(dtype(), data.b.address(0, 0, 3), {special, 0, 0});
    EXPECT_GT(check_config(data, config()), 0);
  }
}

// Shapes, orders, pitches, offsets, epilogues and batches at random.
TEST_P(CudaMma64, RandomProblems) {
  constexpr Layout kOperands[] = {Layout::kRowMajor,    Layout::kColumnMajor, Layout::kRowMajor,
                                  Layout::kColumnMajor, Layout::kSliced,      Layout::kReversed};
  constexpr Layout kResults[] = {Layout::kRowMajor, Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced};
  std::mt19937_64 random(static_cast<std::uint64_t>(config()) + 1);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<std::uint64_t>(limit)); };
  for (int count = 0; count < 16 && !HasFailure(); ++count) {
    MatmulCase spec{dtype(), 1 + below(150), 1 + below(270), 1 + below(200), 1 + below(2)};
    spec.a = kOperands[below(6)], spec.b = kOperands[below(6)], spec.d = kResults[below(4)];
    spec.a_pad = below(9), spec.b_pad = below(9), spec.a_offset = below(9), spec.b_offset = below(9);
    spec.d_pad = below(9), spec.guard = below(9);
    if (below(2) == 0) spec.c = kResults[below(4)];
    spec.beta = matmul::scalar(below(3)), spec.alpha = matmul::scalar(1 + below(2));
    EXPECT_GT(check_config(spec, config()), 0) << "case " << count;
  }
}

// Also the two launches of a split product can be captured, run nothing while they are, and give the result later.
TEST_P(CudaMma64, IsCapturedOnItsStream) {
  const MatmulCase spec{dtype(), 40, 48, 512};
  MatmulData first(spec);
  for (const Plan& plan : plans_of(DeviceCase(first), config())) {
    MatmulData data(spec);
    check_captured(data, DeviceCase(data), plan, plan.splits > 1 ? 2 : 1);
  }
}

// Rows of a and b and columns of d lie 2^32 + 8 elements apart: an offset kept in 32 bits meets the wrong ones. In
// every order of the operands.
TEST_P(CudaMma64, ElementsBeyond32BitOffsets) {
  if (dtype() != DType::kFloat64) GTEST_SKIP() << "as float64";
  constexpr std::int64_t kFar = (std::int64_t{1} << 32) + 8;
  const int size = element_size(dtype());
  const std::size_t bytes = static_cast<std::size_t>(size) * (static_cast<std::size_t>(kFar) + 64);
  std::size_t free = 0, total = 0;
  PMPP_ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  const DeviceMemory memory(free > bytes + (std::size_t{1} << 30) ? bytes : 0);
  if (memory.at(0) == nullptr) GTEST_SKIP() << "needs " << bytes << " bytes of device memory, " << free << " are free";
  const auto put = [&](std::int64_t element, int value) {
    std::byte bits[8];
    store(dtype(), bits, {static_cast<long double>(value), 0, value});
    EXPECT_EQ(cudaSuccess, cudaMemcpy(memory.at(size * element), bits, size, cudaMemcpyHostToDevice));
  };
  const auto get = [&](std::int64_t element) {
    std::byte bits[8];
    EXPECT_EQ(cudaSuccess, cudaMemcpy(bits, memory.at(size * element), size, cudaMemcpyDeviceToHost));
    return static_cast<int>(load(dtype(), bits).re);
  };
  const int a[2][2] = {{2, 3}, {-5, 7}}, b[2][2] = {{4, 13}, {-1, 6}};
  for (const bool a_along_k : {true, false}) {
    for (const bool b_along_k : {true, false}) {
      Problem p{};
      p.dtype = dtype();
      p.m = p.n = p.k = 2;
      p.a = {memory.at(0), a_along_k ? kFar : 1, a_along_k ? 1 : kFar, 0};
      p.b = {memory.at(size * 16), b_along_k ? 1 : kFar, b_along_k ? kFar : 1, 0};
      p.d = {memory.at(size * 32), kFar, 1, 0};
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          put(i * p.a.row_stride + j * p.a.col_stride, a[i][j]);
          put(16 + i * p.b.row_stride + j * p.b.col_stride, b[i][j]);
        }
      }
      int run = 0;
      for (const Plan& plan : matmul::mma64_plans(p, current_device_facts())) {
        if (plan.config != config()) continue;
        ++run;
        PMPP_ASSERT_CUDA(matmul::launch(plan, p, current_device_facts(), nullptr, nullptr));
        PMPP_ASSERT_CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < 2; ++i) {
          for (int j = 0; j < 2; ++j) {
            EXPECT_EQ(get(32 + i * kFar + j), a[i][0] * b[0][j] + a[i][1] * b[1][j]) << a_along_k << b_along_k;
          }
        }
      }
      EXPECT_EQ(run, 1);
    }
  }
}

}  // namespace
}  // namespace pmpp::test
