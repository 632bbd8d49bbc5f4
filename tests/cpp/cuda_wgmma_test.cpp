// Every plan of wgmma against the oracle: each row of kWgmmaTiles, k whole and in pieces, operands where they lie and
// packed, whatever `auto` would choose.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/launch.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/select_wgmma.hpp"
#include "csrc/tiled_matmul/wgmma.hpp"
#include "tests/cpp/cuda_plans.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {
namespace {

using matmul::Algorithm;
using matmul::kWgmmaTileCount;
using matmul::kWgmmaTiles;
using matmul::Plan;
using matmul::Problem;

constexpr Layout kOrders[] = {Layout::kRowMajor, Layout::kColumnMajor};
// Eight steps of 64 with a ragged end: the shortest k of which every number of pieces is offered.
constexpr std::int64_t kSplitK = 505;

bool in_pieces_of_workspace(const Plan& plan) {
  return plan.splits > 1 && !matmul::splits_in_cluster(kWgmmaTiles[plan.config]);
}

// Every number of pieces at k = kSplitK: whole where blocks do not work on pieces of one tile anyway, and in 2, 3, 4, 8
// pieces; and the tiles that can cut their last wave once more, since all of a small problem is that.
std::size_t plans_at_split_k() {
  std::size_t plans = 0;
  for (const matmul::WgmmaTile& tile : kWgmmaTiles) {
    plans += 4 + (matmul::splits_in_cluster(tile) ? 0 : 1) + (matmul::wgmma_has_tail(tile) ? 1 : 0);
  }
  return plans;
}

std::size_t without_displaced(const std::vector<Plan>& plans) {
  return plans.size() - static_cast<std::size_t>(std::count_if(plans.begin(), plans.end(),
                                                               [](const Plan& plan) { return plan.is_a_displaced; }));
}

class CudaWgmma : public NeedsCuda<::testing::TestWithParam<DType>> {
 protected:
  void SetUp() override {
    NeedsCuda::SetUp();
    if (!IsSkipped() && !matmul::wgmma_available(dtype(), current_device_facts())) {
      GTEST_SKIP() << "wgmma needs compute capability 9.0";
    }
  }
  DType dtype() const { return GetParam(); }

  // Runs every plan of the case; returns how many there are, without those that displace a instead of copying it.
  static std::size_t check_all(MatmulData& data) {
    const DeviceCase on_device(data);
    const std::vector<Plan> plans = on_device.plans(Algorithm::kWgmma);
    check_plans(data, on_device, plans);
    std::set<int> tiles;
    bool is_realigned = false;
    for (const Plan& plan : plans) {
      tiles.insert(plan.config);
      is_realigned = is_realigned || plan.is_a_realigned || plan.is_b_realigned;
    }
    if (data.spec.k > matmul::kWgmmaK) {
      const auto expected =
          std::count_if(std::begin(matmul::kWgmmaTiles), std::end(matmul::kWgmmaTiles), [&](const auto& tile) {
            const Problem p = matmul::wgmma_problem(on_device.problem(), tile);
            return (is_realigned || !tile.realigns) &&
                   matmul::wgmma_takes(tile, 2, matmul::view_a(p).is_mn_major, matmul::view_b(p).is_mn_major);
          });
      EXPECT_EQ(tiles.size(), static_cast<std::size_t>(expected)) << "every tile runs where k can be cut";
    }
    return without_displaced(plans);
  }
  static std::size_t check_all(const MatmulCase& spec) {
    MatmulData data(spec);
    return check_all(data);
  }

  // The case in all four orders of a and b, with lines as they come and with lines that TMA can address.
  void check_orders(MatmulCase spec) {
    for (const Layout a : kOrders) {
      for (const Layout b : kOrders) {
        spec.a = a, spec.b = b;
        spec.a_pad = spec.b_pad = 0;
        EXPECT_GT(check_all(spec), 0u);
        align_lines(spec);
        EXPECT_GT(check_all(spec), 0u);
        if (HasFailure()) return;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, CudaWgmma, ::testing::Values(DType::kFloat16, DType::kBFloat16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(CudaWgmma, SizesAroundEveryTile) {
  std::set<std::int64_t> rows = {1}, cols = {1};
  for (const matmul::WgmmaTile& tile : kWgmmaTiles) {
    for (const int around : {-1, 0, 1}) {
      rows.insert(tile.m + around);
      cols.insert(tile.n + around);
    }
  }
  const std::vector<std::int64_t> all_m(rows.begin(), rows.end()), all_n(cols.begin(), cols.end());
  constexpr std::int64_t kAllK[] = {1, 63, 64, 65, 127, 128, 129, 191, 257};
  std::size_t count = 0;
  for (const std::int64_t n : all_n) {
    MatmulCase spec{dtype(), all_m[count % all_m.size()], n, kAllK[count % std::size(kAllK)]};
    spec.guard = count++ % 2 * 3;
    check_orders(spec);
    if (HasFailure()) return;
  }
  for (const std::int64_t m : all_m) {
    MatmulCase spec{dtype(), m, all_n[(5 * count) % all_n.size()], kAllK[(2 * count + 1) % std::size(kAllK)]};
    spec.guard = count++ % 2 * 8;
    check_orders(spec);
    if (HasFailure()) return;
  }
}

// Several tiles in each direction, clusters with a row of tiles too many, and more steps than there are stages.
TEST_P(CudaWgmma, ManyTilesAndSteps) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{257, 513, 65}, {641, 130, 72}, {40, 24, 1500}}) {
    check_orders(MatmulCase{dtype(), m, n, k});
    if (HasFailure()) return;
  }
  MatmulCase spec{dtype(), 72, 40, kSplitK};
  EXPECT_EQ(check_all(spec), plans_at_split_k());
}

// The blocks of one cluster do all tiles, so that rings and staging go round.
TEST_P(CudaWgmma, OneClusterStridesOverEverything) {
  for (const std::int64_t n : {264, 261}) {
    MatmulCase spec{dtype(), 264, n, 328, 2};
    spec.a_pad = 0, spec.b_pad = static_cast<int>(round_up(n, 8) - n);
    MatmulData data(spec);
    const DeviceCase on_device(data);
    std::vector<Plan> plans = on_device.plans(Algorithm::kWgmma);
    // A cluster over k does one tile; its grid is what it is.
    std::erase_if(plans, [](const Plan& plan) { return matmul::splits_in_cluster(kWgmmaTiles[plan.config]); });
    for (Plan& plan : plans) plan.grid[0] = plan.cluster;
    check_plans(data, on_device, plans);
  }
}

// Base and pitch of both operands modulo 16 bytes.
TEST_P(CudaWgmma, EveryResidueOfTheOperands) {
  for (int residue = 0; residue < 8; ++residue) {
    for (const int pad : {0, residue, (5 * residue + 2) % 8}) {
      for (const Layout a : kOrders) {
        for (const Layout b : kOrders) {
          MatmulCase spec{dtype(), 67, 71, 77};
          spec.a = a, spec.b = b;
          align_lines(spec);
          spec.a_offset = residue, spec.b_offset = (3 * residue + pad) % 8;
          spec.a_pad += pad, spec.b_pad += (pad + residue) % 8;
          EXPECT_GT(check_all(spec), 0u);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(CudaWgmma, OneOperandIsPackedTheOtherNot) {
  for (const bool is_a_off : {true, false}) {
    for (const Layout order : kOrders) {
      MatmulCase spec{dtype(), 72, 136, 200};
      spec.a = spec.b = order;
      (is_a_off ? spec.a_offset : spec.b_offset) = 1;
      MatmulData data(spec);
      for (const Plan& plan : DeviceCase(data).plans(Algorithm::kWgmma)) {
        const matmul::WgmmaTile& tile = matmul::kWgmmaTiles[plan.config];
        const bool is_exchanged = tile.n < 64 && spec.m < spec.n;  // the short side is the thin tiles' own
        const bool is_first_off = is_a_off != is_exchanged;
        if (plan.is_a_displaced) {
          EXPECT_TRUE(is_first_off && !tile.realigns && !plan.is_a_packed && !plan.is_b_packed) << to_string(plan);
          continue;
        }
        EXPECT_EQ(plan.is_a_packed, is_first_off && !tile.realigns) << to_string(plan);
        EXPECT_EQ(plan.is_b_packed, !is_first_off && !tile.realigns) << to_string(plan);
        EXPECT_EQ(plan.is_a_realigned, is_first_off && tile.realigns) << to_string(plan);
        EXPECT_EQ(plan.is_b_realigned, !is_first_off && tile.realigns) << to_string(plan);
      }
      check_all(data);
      if (HasFailure()) return;
    }
  }
}

TEST_P(CudaWgmma, OperandsOfAnyStrides) {
  check_every_layout(MatmulCase{dtype(), 40, 56, 72}, [](MatmulCase spec, int count) {
    spec.guard = count % 9;
    EXPECT_GT(check_all(spec), 0u);
  });
}

// Base and pitch of d modulo 16 bytes: by TMA, by words, by words that a row starts off, and by the element; row by row
// and column by column.
TEST_P(CudaWgmma, EveryResidueOfTheResult) {
  for (int base = 0; base < 8; ++base) {
    for (const int pad : {0, 1, 2, 4, 7}) {
      for (const Layout d :
           {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kSlicedColumnMajor, Layout::kReversed}) {
        MatmulCase spec{dtype(), 72, 136, 72};
        spec.d = d, spec.guard = base, spec.d_pad = pad;
        EXPECT_GT(check_all(spec), 0u);
        if (HasFailure()) return;
      }
    }
  }
  for (const std::int64_t n : {1, 2, 7, 63, 65, 127, 129, 131, 191, 193, 255, 257}) {  // ragged ends of rows
    for (const Layout d : kOrders) {
      for (const int base : {8, 1}) {
        MatmulCase spec{dtype(), 66, n, 72};
        spec.d = d, spec.guard = base;
        spec.d_pad = static_cast<int>(round_up(d == Layout::kRowMajor ? n : 66, 8) - (d == Layout::kRowMajor ? n : 66));
        EXPECT_GT(check_all(spec), 0u);
        spec.d_pad += 1;
        EXPECT_GT(check_all(spec), 0u);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(CudaWgmma, EpilogueWithAndWithoutPieces) {
  const matmul::Scalar half{0.5, 0, 0};
  const struct {
    std::optional<Layout> c;
    matmul::Scalar alpha, beta;
  } cases[] = {{std::nullopt, matmul::scalar(-3), matmul::scalar(0)},
               {Layout::kRowMajor, matmul::scalar(1), matmul::scalar(1)},
               {Layout::kColumnMajor, matmul::scalar(2), matmul::scalar(-1)},
               {Layout::kSameRow, matmul::scalar(1), matmul::scalar(3)},  // a bias row
               {Layout::kSameColumn, matmul::scalar(-2), matmul::scalar(1)},
               {Layout::kSameElement, half, matmul::scalar(-2)},
               {Layout::kSliced, matmul::scalar(0), matmul::scalar(1)},
               {std::nullopt, matmul::scalar(1), matmul::scalar(1)}};
  for (const auto& epilogue : cases) {
    for (const Layout d : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced}) {
      for (const std::int64_t m : {35, 40}) {  // rows of a that are copied, and that may be displaced
        MatmulCase spec{dtype(), m, 72, kSplitK};
        spec.c = epilogue.c, spec.alpha = epilogue.alpha, spec.beta = epilogue.beta, spec.d = d;
        EXPECT_EQ(check_all(spec), plans_at_split_k());
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(CudaWgmma, CIsNotReadWhereBetaIsZero) {
  MatmulCase spec{dtype(), 40, 72, kSplitK};
  spec.c = Layout::kRowMajor, spec.alpha = matmul::scalar(2);
  MatmulData data(spec);
  std::fill(data.c.storage.begin(), data.c.storage.end(), std::byte{Buffer::kPoison});
  EXPECT_EQ(check_all(data), plans_at_split_k());
}

TEST_P(CudaWgmma, Batches) {
  constexpr BatchLayout kAll[] = {BatchLayout::kPacked, BatchLayout::kApart, BatchLayout::kReversed,
                                  BatchLayout::kShared};
  for (const std::int64_t m : {72, 71}) {  // matrices one 16-byte boundary after another, and not
    for (int i = 0; i < 16; ++i) {
      MatmulCase spec{dtype(), m, 40, 136, 3};
      spec.a_batch = kAll[i % 4], spec.b_batch = kAll[i / 4], spec.c_batch = kAll[(i + 2) % 4];
      spec.d_batch = kAll[i % 3];  // the matrices of a result never share memory
      spec.a = kOrders[i % 2], spec.b = kOrders[i / 2 % 2], spec.d = kOrders[i / 4 % 2];
      spec.guard = 8;
      if (i % 3 == 0) spec.c = Layout::kRowMajor, spec.beta = matmul::scalar(1);
      EXPECT_GT(check_all(spec), 0u);
      if (HasFailure()) return;
    }
  }
}

// Whole numbers whose sums need more bits than a result has and fewer than float32, rounded once.
TEST_P(CudaWgmma, LongSumsAreExactAndRoundedOnce) {
  for (const std::int64_t k : {601, 65536}) {
    MatmulCase spec{dtype(), 9, 17, k};
    spec.fill = Fill::kPositiveIntegers;
    spec.alpha = matmul::Scalar{1.0 / 64, 0, 0};  // keeps them within float16
    align_lines(spec);
    EXPECT_GT(check_all(spec), 0u);
    MatmulData data(spec);
    const DeviceCase on_device(data);
    const auto chosen = matmul::select(on_device.problem(), current_device_facts(), Algorithm::kWgmma);
    ASSERT_TRUE(chosen);
    if (k > 60000) {
      EXPECT_GT(chosen->splits, 1) << to_string(*chosen);
    }
    check_plans(data, on_device, {*chosen});
  }
}

// Each plan, 200 times on one input.
TEST_P(CudaWgmma, RealValuesAndTheSameBitsEveryTime) {
  MatmulCase spec{dtype(), 72, 136, kSplitK};
  spec.fill = Fill::kReal;
  MatmulData data(spec);
  const DeviceCase on_device(data);
  const std::vector<Plan> plans = on_device.plans(Algorithm::kWgmma);
  EXPECT_EQ(without_displaced(plans), plans_at_split_k());
  EXPECT_GT(plans.size(), plans_at_split_k());
  check_plans(data, on_device, plans);
  for (const Plan& plan : plans) {
    std::vector<std::byte> first, again;
    on_device.run(plan, first);
    const DeviceMemory workspace = poisoned_workspace(plan.workspace_bytes);
    for (int repetition = 0; repetition < 200; ++repetition) {
      PMPP_ASSERT_CUDA(on_device.launch(plan, workspace)) << to_string(plan);
      on_device.read(again);
      ASSERT_EQ(first, again) << to_string(plan) << ", repetition " << repetition;
    }
  }
}

// NaN and infinities, one at a time, at the ends of rows, columns and steps: they reach the outputs that IEEE
// arithmetic sends them to and no other. What lies around the operands is NaN in every test.
TEST_P(CudaWgmma, SpecialsReachTheirRowOrColumnOnly) {
  constexpr std::int64_t kN = 67, kK = 131;
  const long double nan = std::numeric_limits<double>::quiet_NaN();
  const long double infinity = std::numeric_limits<double>::infinity();
  int count = 0;
  // 72 rows that lie off 16 bytes can be displaced: they bring along the ends of their neighbours.
  for (const std::int64_t m : {65, 72}) {
    const std::int64_t places[][3] = {{0, 0, 0},    {63, 64, 63}, {64, 63, 64}, {m - 1, kN - 1, kK - 1},
                                      {30, 2, 127}, {m - 9, 3, 0}};
    for (const auto& [i, j, l] : places) {
      for (const long double special : {nan, infinity, -infinity}) {
        MatmulCase spec{dtype(), m, kN, kK};
        spec.fill = Fill::kPositiveIntegers;
        if (m % 8 != 0) {
          spec.a = kOrders[count % 2], spec.b = kOrders[count / 2 % 2];
          if (count++ % 3 > 0) align_lines(spec);
        }
        MatmulData in_a(spec), in_b(spec);
        store(dtype(), in_a.a.address(0, i, l), {special, 0, 0});
        store(dtype(), in_b.b.address(0, l, j), {special, 0, 0});
        EXPECT_GT(check_all(in_a), 0u);
        EXPECT_GT(check_all(in_b), 0u);
        if (HasFailure()) return;
      }
    }
  }
}

// Shapes, orders, pitches, offsets, epilogues and batches at random.
TEST_P(CudaWgmma, RandomProblems) {
  constexpr Layout kOperands[] = {Layout::kRowMajor,    Layout::kColumnMajor, Layout::kRowMajor,
                                  Layout::kColumnMajor, Layout::kSliced,      Layout::kReversed};
  constexpr Layout kResults[] = {Layout::kRowMajor, Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced};
  std::mt19937_64 random(dtype() == DType::kFloat16 ? 1 : 2);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<std::uint64_t>(limit)); };
  for (int count = 0; count < 60 && !HasFailure(); ++count) {
    MatmulCase spec{dtype(), 1 + below(150), 1 + below(270), 1 + below(300), 1 + below(2)};
    spec.a = kOperands[below(6)], spec.b = kOperands[below(6)], spec.d = kResults[below(4)];
    if (below(2) == 0 && spec.a <= Layout::kColumnMajor && spec.b <= Layout::kColumnMajor) {
      align_lines(spec);
    } else {
      spec.a_pad = below(9), spec.b_pad = below(9), spec.a_offset = below(9), spec.b_offset = below(9);
    }
    spec.d_pad = below(9), spec.guard = below(9);
    if (below(2) == 0) spec.c = kResults[below(4)];
    spec.beta = matmul::scalar(below(3)), spec.alpha = matmul::scalar(1 + below(2));
    EXPECT_GT(check_all(spec), 0u) << "case " << count;
  }
}

// What every algorithm must do, with one plan after another.
TEST_P(CudaWgmma, MatchesTheOracle) {
  std::size_t count = 0;
  const Execute any_plan = [&](MatmulData& data) {
    const DeviceCase on_device(data);
    const std::vector<Plan> plans = on_device.plans(Algorithm::kWgmma);
    if (data.spec.m * data.spec.n * data.spec.k * data.spec.batch == 0) {
      ASSERT_TRUE(plans.empty()) << "nothing to multiply: for the classic kernels";
      const auto plan = matmul::select(on_device.problem(), current_device_facts(), Algorithm::kAuto);
      ASSERT_TRUE(plan);
      on_device.run(*plan, data.d.storage);
      return;
    }
    ASSERT_FALSE(plans.empty());
    // The repeated run of check_repeatable must meet the same plan.
    count += data.spec.fill == Fill::kReal ? 0 : 1;
    on_device.run(plans[count % plans.size()], data.d.storage);
  };
  check_everything(any_plan, dtype(), {64});
}

// One product after another on a stream, each the operand of the next, all with one workspace: none starts before what
// it reads is written, nor writes what is still being read. b moves every column by one place.
TEST_P(CudaWgmma, EachWaitsForTheOneBefore) {
  constexpr std::int64_t kM = 192, kN = 512;
  for (const Layout order : {Layout::kRowMajor, Layout::kColumnMajor}) {
    MatmulCase spec{dtype(), kM, kN, kN};
    spec.a = spec.d = order;
    MatmulData data(spec);
    data.b.for_each([&](std::int64_t, std::int64_t row, std::int64_t col) {
      store(dtype(), data.b.address(0, row, col), {row == (col + 1) % kN ? 1.0L : 0.0L, 0, 0});
    });
    const DeviceMemory first(data.a.storage), b(data.b.storage), second(data.a.storage.size());
    Problem there = data.problem();
    there.a.data = first.at(data.a.offset_bytes());
    there.b.data = b.at(data.b.offset_bytes());
    there.d = {second.at(data.a.offset_bytes()), there.a.row_stride, there.a.col_stride, 0};
    Problem back = there;
    back.a.data = there.d.data;
    back.d.data = first.at(data.a.offset_bytes());
    const std::vector<Plan> plans = matmul::wgmma_plans(there, current_device_facts());
    std::int64_t bytes = 0;
    for (const Plan& plan : plans) bytes = std::max(bytes, plan.workspace_bytes);
    const DeviceMemory workspace = poisoned_workspace(bytes);
    cudaStream_t stream = nullptr;
    PMPP_ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::mt19937_64 random(7);
    constexpr int kProducts = 1000;
    static_assert(kProducts % 2 == 0);
    for (int product = 0; product < kProducts; ++product) {
      const Plan& plan = plans[random() % plans.size()];
      PMPP_ASSERT_CUDA(
          matmul::launch(plan, product % 2 == 0 ? there : back, current_device_facts(), workspace.at(0), stream));
    }
    PMPP_ASSERT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(cudaSuccess, cudaStreamDestroy(stream));
    Buffer moved = data.a;
    first.read(moved.storage);
    for (std::int64_t row = 0; row < kM; ++row) {
      for (std::int64_t col = 0; col < kN; ++col) {
        const Value expected = load(dtype(), data.a.address(0, row, (col + kProducts) % kN));
        ASSERT_TRUE(same(load(dtype(), moved.address(0, row, col)), expected)) << row << " " << col;
      }
    }
  }
}

// The copies, the product and the second pass can be captured, run nothing while they are, and give the result later.
TEST_P(CudaWgmma, IsCapturedOnItsStream) {
  for (const int offset : {0, 1}) {
    MatmulCase spec{dtype(), 40, 48, 512};
    spec.a_offset = offset;
    MatmulData first(spec);
    for (const Plan& plan : DeviceCase(first).plans(Algorithm::kWgmma)) {
      MatmulData data(spec);
      const std::size_t nodes =
          1 + (in_pieces_of_workspace(plan) ? 1 : 0) + (plan.is_a_packed || plan.is_b_packed ? 1 : 0);
      check_captured(data, DeviceCase(data), plan, nodes);
      if (HasFailure()) return;
    }
  }
}

// More tiles than the GPU works on at once, and the last of them in pieces: of every tile that has such plans, with
// whole tiles before, several pieces for a block, and ragged edges.
TEST_P(CudaWgmma, TheLastTilesInPieces) {
  for (const Layout order : kOrders) {
    MatmulCase spec{dtype(), 2100, 2090, 200};
    spec.a = order;
    spec.b = order;
    spec.d = order;
    MatmulData data(spec);
    const DeviceCase on_device(data);
    std::vector<Plan> plans;
    std::set<int> configs;
    for (const Plan& plan : on_device.plans(Algorithm::kWgmma)) {
      const std::int64_t tiles = ceil_div(spec.m, plan.tile_m) * ceil_div(spec.n, plan.tile_n);
      if (plan.tail_tiles == 0 || plan.tail_tiles >= tiles) continue;
      plans.push_back(plan);
      configs.insert(plan.config);
    }
    EXPECT_GE(configs.size(), 6u);
    check_plans(data, on_device, plans);
    if (HasFailure()) return;
  }
}

// Two matrices of `lines` lines of kLength elements, the lines more than 2^27 elements apart: a in front, d behind it
// in the same lines. An offset kept in 32 bits meets the wrong ones.
TEST_P(CudaWgmma, ElementsBeyond32BitOffsets) {
  constexpr std::int64_t kLines = 40, kLength = 72, kCols = 24, kPlace = 1024;
  constexpr std::int64_t kBytes = 2 * kLines * ((std::int64_t{1} << 27) + 8);
  std::size_t free = 0, total = 0;
  PMPP_ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  const DeviceMemory memory(free > kBytes + (std::size_t{1} << 30) ? kBytes : 0);
  if (memory.at(0) == nullptr) GTEST_SKIP() << "needs " << kBytes << " bytes of device memory, " << free << " are free";
  const auto value_of_a = [](std::int64_t line, std::int64_t at) { return (line * 5 + at * 3) % 9 - 4; };
  const auto value_of_b = [](std::int64_t row, std::int64_t col) { return (row * 7 + col) % 5 - 2; };
  const auto bits = [&](std::int64_t rows, std::int64_t cols, auto&& value) {
    std::vector<std::byte> result(static_cast<std::size_t>(2 * rows * cols));
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        store(dtype(), result.data() + 2 * (i * cols + j), {static_cast<long double>(value(i, j)), 0, 0});
      }
    }
    return result;
  };
  const std::vector<std::byte> a = bits(kLines, kLength, value_of_a);
  const std::vector<std::byte> b_by_rows = bits(kLength, kCols, value_of_b),
                               b_by_lines = bits(kLines, kCols, value_of_b);
  for (const std::int64_t pitch : {std::int64_t{1} << 27, (std::int64_t{1} << 27) + 3}) {  // addressed and packed
    for (const bool is_transposed : {false, true}) {
      const DeviceMemory b(is_transposed ? b_by_lines : b_by_rows);
      PMPP_ASSERT_CUDA(cudaMemcpy2D(memory.at(0), static_cast<std::size_t>(2 * pitch), a.data(), 2 * kLength,
                                    2 * kLength, kLines, cudaMemcpyHostToDevice));
      Problem p{};
      p.dtype = dtype();
      p.m = is_transposed ? kLength : kLines;
      p.k = is_transposed ? kLines : kLength;
      p.n = kCols;
      p.a = is_transposed ? matmul::Operand{memory.at(0), 1, pitch, 0} : matmul::Operand{memory.at(0), pitch, 1, 0};
      p.b = {b.at(0), kCols, 1, 0};
      // Rows of d far apart, or its columns.
      p.d = is_transposed ? matmul::Result{memory.at(2 * kPlace), 1, pitch, 0}
                          : matmul::Result{memory.at(2 * kPlace), pitch, 1, 0};
      const std::int64_t lines = is_transposed ? p.n : p.m, length = is_transposed ? p.m : p.n;
      std::vector<std::byte> d(static_cast<std::size_t>(2 * lines * length));
      for (const Plan& plan : matmul::wgmma_plans(p, current_device_facts())) {
        const DeviceMemory workspace = poisoned_workspace(plan.workspace_bytes);
        PMPP_ASSERT_CUDA(cudaMemset2D(memory.at(2 * kPlace), static_cast<std::size_t>(2 * pitch), Buffer::kPoison,
                                      static_cast<std::size_t>(2 * length), static_cast<std::size_t>(lines)));
        PMPP_ASSERT_CUDA(matmul::launch(plan, p, current_device_facts(), workspace.at(0), nullptr)) << to_string(plan);
        PMPP_ASSERT_CUDA(cudaMemcpy2D(d.data(), static_cast<std::size_t>(2 * length), memory.at(2 * kPlace),
                                      static_cast<std::size_t>(2 * pitch), static_cast<std::size_t>(2 * length),
                                      static_cast<std::size_t>(lines), cudaMemcpyDeviceToHost));
        for (std::int64_t line = 0; line < lines; ++line) {
          for (std::int64_t at = 0; at < length; ++at) {
            const std::int64_t i = is_transposed ? at : line, j = is_transposed ? line : at;
            std::int64_t sum = 0;
            for (std::int64_t l = 0; l < p.k; ++l) {
              sum += (is_transposed ? value_of_a(l, i) : value_of_a(i, l)) * value_of_b(l, j);
            }
            const auto got = load(dtype(), d.data() + 2 * (line * length + at));
            const Value expected = rounded(dtype(), {static_cast<long double>(sum), 0, 0});
            ASSERT_TRUE(same(got, expected)) << to_string(plan) << " " << to_string(p) << ": d[" << i << "][" << j
                                             << "] " << to_text(got) << ", expected " << to_text(expected);
          }
        }
      }
    }
  }
}

// a has 2^31 + 2^16 elements, all alike but for three rows of zeros; so many rows of tiles do not fit grid.y either.
TEST_P(CudaWgmma, MoreThan2To31Elements) {
  constexpr std::int64_t kK = 64, kM = (std::int64_t{1} << 25) + 1024, kN = 8;
  constexpr std::int64_t kBytes = 2 * (kM * kK + kM * kN);
  std::size_t free = 0, total = 0;
  PMPP_ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  const DeviceMemory memory(free > kBytes + (std::size_t{1} << 30) ? kBytes : 0);
  if (memory.at(0) == nullptr) GTEST_SKIP() << "needs " << kBytes << " bytes of device memory, " << free << " are free";
  std::vector<std::byte> ones(2 * kK * kN);
  for (std::size_t i = 0; i < ones.size(); i += 2) store(dtype(), ones.data() + i, {1, 0, 0});
  const DeviceMemory b(ones);
  constexpr int kByte = 0x3c;
  const std::byte element[2] = {std::byte{kByte}, std::byte{kByte}};
  const Value sum = rounded(dtype(), {64 * load(dtype(), element).re, 0, 0});
  const std::int64_t zeros[] = {0, std::int64_t{1} << 25, kM - 1};
  const auto is_zero = [&](std::int64_t row) { return std::count(std::begin(zeros), std::end(zeros), row) > 0; };
  PMPP_ASSERT_CUDA(cudaMemset(memory.at(0), kByte, 2 * kM * kK));
  for (const std::int64_t row : zeros) PMPP_ASSERT_CUDA(cudaMemset(memory.at(2 * row * kK), 0, 2 * kK));
  Problem p{};
  p.dtype = dtype();
  p.m = kM, p.n = kN, p.k = kK;
  p.a = {memory.at(0), kK, 1, 0};
  p.b = {b.at(0), kN, 1, 0};
  p.d = {memory.at(2 * kM * kK), kN, 1, 0};
  const std::vector<Plan> plans = matmul::wgmma_plans(p, current_device_facts());
  EXPECT_FALSE(plans.empty());
  for (const Plan& plan : plans) {
    PMPP_ASSERT_CUDA(cudaMemset(p.d.data, Buffer::kPoison, 2 * kM * kN));
    PMPP_ASSERT_CUDA(matmul::launch(plan, p, current_device_facts(), nullptr, nullptr)) << to_string(plan);
    for (const std::int64_t place : {std::int64_t{0}, kM / 2, (std::int64_t{1} << 25) - 512, kM - 1024}) {
      std::vector<std::byte> rows(2 * 1024 * kN);
      PMPP_ASSERT_CUDA(cudaMemcpy(rows.data(), static_cast<std::byte*>(p.d.data) + 2 * place * kN, rows.size(),
                                  cudaMemcpyDeviceToHost));
      for (std::int64_t at = 0; at < 1024 * kN; ++at) {
        const Value got = load(dtype(), rows.data() + 2 * at);
        ASSERT_TRUE(same(got, is_zero(place + at / kN) ? Value{} : sum))
            << to_string(plan) << ": row " << place + at / kN << " " << to_text(got);
      }
    }
  }
}

// A plan that is none is refused before anything reaches CUDA.
TEST_P(CudaWgmma, WrongPlansAreRefused) {
  MatmulData data(MatmulCase{dtype(), 16, 16, kSplitK});
  const DeviceCase on_device(data);
  const std::vector<Plan> plans = on_device.plans(Algorithm::kWgmma);
  ASSERT_FALSE(plans.empty());
  for (const int config : {-1, kWgmmaTileCount}) {
    Plan plan = plans[0];
    plan.config = config;
    EXPECT_EQ(on_device.launch(plan, poisoned_workspace(plan.workspace_bytes)), cudaErrorInvalidValue);
  }
  const auto in_pieces = std::find_if(plans.begin(), plans.end(), in_pieces_of_workspace);
  ASSERT_NE(in_pieces, plans.end());
  EXPECT_EQ(on_device.launch(*in_pieces, DeviceMemory(0)), cudaErrorInvalidValue) << "no workspace";
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace pmpp::test
