// Every plan of mma against the oracle: each tile, k whole and in pieces, whatever `auto` would choose.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/launch.hpp"
#include "csrc/tiled_matmul/mma.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {
namespace {

using matmul::kMmaConfigs;
using matmul::kMmaTiles;
using matmul::MmaTile;
using matmul::Plan;
using matmul::Problem;

// The plans with a tile for the operands as they will lie in device memory, whose allocations are aligned.
std::vector<Plan> plans_of(MatmulData& data, int config) {
  Problem problem = data.problem();
  problem.a.data = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(data.a.offset_bytes()));
  problem.b.data = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(data.b.offset_bytes()));
  std::vector<Plan> plans;
  for (const Plan& plan : matmul::mma_plans(problem, current_device_facts())) {
    if (plan.config == config) plans.push_back(plan);
  }
  return plans;
}

// An operand up to the end of its last aligned word of 16 bytes: the kernel may read what shares a word with an
// element.
std::vector<std::byte> whole_words(const Buffer& buffer) {
  std::vector<std::byte> bytes = buffer.storage;
  bytes.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(bytes.size()), 16)),
               std::byte{Buffer::kPoison});
  return bytes;
}

void execute(const Plan& plan, MatmulData& data) {
  Problem problem = data.problem();
  const DeviceMemory a(whole_words(data.a)), b(whole_words(data.b)), c(data.c.storage), d(data.d.storage);
  // Partial sums that are not written would add NaN.
  const DeviceMemory workspace(
      std::vector<std::byte>(static_cast<std::size_t>(plan.workspace_bytes), std::byte{Buffer::kPoison}));
  problem.a.data = a.at(data.a.offset_bytes());
  problem.b.data = b.at(data.b.offset_bytes());
  problem.c.data = c.at(data.c.offset_bytes());
  problem.d.data = d.at(data.d.offset_bytes());
  PMPP_ASSERT_CUDA(matmul::launch(plan, problem, test::current_device_facts(), workspace.at(0), nullptr)) << to_string(plan);
  PMPP_ASSERT_CUDA(cudaDeviceSynchronize()) << to_string(plan) << " " << to_string(problem);
  d.read(data.d.storage);
}

// Runs a case with every plan of the tile; returns how many there are.
int check_plans(const MatmulCase& spec, int config) {
  MatmulData first(spec);
  const std::vector<Plan> plans = plans_of(first, config);
  for (const Plan& plan : plans) {
    MatmulData data(spec);
    check([&](MatmulData& d) { execute(plan, d); }, data);
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << to_string(plan) << ", offsets " << spec.a_offset << " " << spec.b_offset;
      break;
    }
  }
  return static_cast<int>(plans.size());
}

class CudaMma : public NeedsCuda<::testing::TestWithParam<std::tuple<int, DType>>> {
 protected:
  void SetUp() override {
    NeedsCuda::SetUp();
    if (!IsSkipped() && current_device_facts().compute_capability < 80) {
      GTEST_SKIP() << "mma needs compute capability 8.0";
    }
  }
  int config() const { return std::get<0>(GetParam()); }
  const MmaTile& tile() const { return kMmaTiles[config()]; }
  DType dtype() const { return std::get<1>(GetParam()); }

  // The case in all four orders of a and b.
  void check_orders(MatmulCase spec) {
    for (const Layout a : {Layout::kRowMajor, Layout::kColumnMajor}) {
      for (const Layout b : {Layout::kRowMajor, Layout::kColumnMajor}) {
        spec.a = a, spec.b = b;
        EXPECT_GT(check_plans(spec, config()), 0);
        if (HasFailure()) return;
      }
    }
  }
  // Makes the lines of a and b start at multiples of 16 bytes, in whichever order.
  static void align(MatmulCase& spec) {
    const auto pad = [](std::int64_t line) { return static_cast<int>((8 - line % 8) % 8); };
    spec.a_pad = pad(spec.a == Layout::kRowMajor ? spec.k : spec.m);
    spec.b_pad = pad(spec.b == Layout::kRowMajor ? spec.n : spec.k);
  }
  void check_aligned_orders(MatmulCase spec) {
    for (const Layout a : {Layout::kRowMajor, Layout::kColumnMajor}) {
      for (const Layout b : {Layout::kRowMajor, Layout::kColumnMajor}) {
        spec.a = a, spec.b = b;
        align(spec);
        EXPECT_GT(check_plans(spec, config()), 0);
        if (HasFailure()) return;
      }
    }
  }
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
  const std::int64_t sizes[][3] = {{1, 1, 1},
                                   {m, n, k},
                                   {m - 1, n + 1, k - 1},
                                   {m + 1, n - 1, k + 1},
                                   {m + 1, n + 1, 2 * k - 1},
                                   {1, n, 3 * k + 1},
                                   {m, 1, tile().stages * k},
                                   {2 * m - 1, 2 * n + 3, (tile().stages + 2) * k + 5}};
  int count = 0;
  for (const auto& [rows, cols, inner] : sizes) {
    MatmulCase spec{dtype(), rows, cols, inner};
    spec.guard = count++ % 2 * 3;
    check_aligned_orders(spec);
    if (HasFailure()) return;
  }
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
      check_orders(spec);
      if (HasFailure()) return;
    }
  }
}

TEST_P(CudaMma, ResultsOfEveryAlignmentAndOrder) {
  for (int residue = 0; residue < 8; ++residue) {
    for (const Layout d : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kReversed}) {
      MatmulCase spec{dtype(), 40, 72, 64};
      spec.d = d, spec.d_pad = residue % 4 * 2, spec.guard = residue;
      EXPECT_GT(check_plans(spec, config()), 0);
      if (HasFailure()) return;
    }
  }
  for (const int d_pad : {0, 8, 4}) {  // 16-byte writes with a ragged end, and none
    MatmulCase spec{dtype(), 33, 75, 64};
    spec.b_pad = 5, spec.d_pad = 5 + d_pad, spec.guard = 8;
    EXPECT_GT(check_plans(spec, config()), 0);
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
    EXPECT_GE(check_plans(spec, config()), 3) << "whole, in two pieces, in three";
    if (HasFailure()) return;
  }
  for (const std::int64_t n : {37, 44}) {  // partial sums by the element and by four
    MatmulCase spec{dtype(), 21, n, 600};
    spec.fill = Fill::kPositiveIntegers;
    align(spec);
    EXPECT_GE(check_plans(spec, config()), 3);
  }
}

TEST_P(CudaMma, RealValuesAndTheSameBitsTwice) {
  MatmulCase spec{dtype(), 136, 264, 328};
  spec.fill = Fill::kReal;
  MatmulData first(spec);
  for (const Plan& plan : plans_of(first, config())) {
    MatmulData once(spec), again(spec);
    check([&](MatmulData& data) { execute(plan, data); }, once);
    execute(plan, again);
    EXPECT_EQ(once.d.storage, again.d.storage) << to_string(plan);
  }
}

// A plan with a single block must still do everything.
TEST_P(CudaMma, OneBlockStridesOverEverything) {
  MatmulCase spec{dtype(), 2 * tile().m + 8, tile().n + 8, 3 * tile().k, 2};
  MatmulData data(spec);
  for (Plan plan : plans_of(data, config())) {
    plan.grid[0] = 1;
    check([&](MatmulData& d) { execute(plan, d); }, MatmulCase(spec));
  }
}

// All strides, sizes of 0 and 1, NaN and infinities: what every algorithm must do. Only tiles that read anything.
TEST_P(CudaMma, MatchesTheOracle) {
  if (tile().async) GTEST_SKIP() << "reads aligned operands only";
  for (std::size_t index = 0; index < 2; ++index) {
    const Execute any_plan = [&](MatmulData& data) {
      const std::vector<Plan> plans = plans_of(data, config());
      ASSERT_FALSE(plans.empty());
      execute(plans[index % plans.size()], data);
    };
    check_everything(any_plan, dtype(), {tile().k});
  }
}

// NaN in an operand's neighbours, and in what lies past the end of k, must not reach the result; infinities must.
TEST_P(CudaMma, SpecialsReachTheirRowAndColumnOnly) {
  for (const long double special :
       {std::numeric_limits<long double>::quiet_NaN(), std::numeric_limits<long double>::infinity()}) {
    MatmulCase spec{dtype(), 24, 40, 72};
    spec.fill = Fill::kPositiveIntegers;
    MatmulData first(spec);
    for (const Plan& plan : plans_of(first, config())) {
      MatmulData data(spec);
      store(dtype(), data.a.address(0, 23, 71), {special, 0, 0});
      store(dtype(), data.b.address(0, 0, 3), {special, 0, 0});
      check([&](MatmulData& d) { execute(plan, d); }, data);
    }
  }
}

// Shapes, orders, pitches, offsets, epilogues and batches at random.
TEST_P(CudaMma, RandomProblems) {
  constexpr Layout kOperands[] = {Layout::kRowMajor,    Layout::kColumnMajor, Layout::kRowMajor,
                                  Layout::kColumnMajor, Layout::kSliced,      Layout::kReversed};
  constexpr Layout kResults[] = {Layout::kRowMajor, Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced};
  std::mt19937_64 random(static_cast<std::uint64_t>(config()) + 1);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<std::uint64_t>(limit)); };
  for (int count = 0; count < 24 && !HasFailure(); ++count) {
    MatmulCase spec{dtype(), 1 + below(150), 1 + below(270), 1 + below(300), 1 + below(2)};
    spec.a = kOperands[below(tile().async ? 4 : 6)], spec.b = kOperands[below(tile().async ? 4 : 6)];
    spec.d = kResults[below(4)];
    if (tile().async) {
      spec.batch = 1;
      align(spec);
    } else {
      spec.a_pad = below(9), spec.b_pad = below(9), spec.a_offset = below(9), spec.b_offset = below(9);
    }
    spec.d_pad = below(9), spec.guard = below(9);
    if (below(2) == 0) spec.c = kResults[below(4)];
    spec.beta = matmul::scalar(below(3)), spec.alpha = matmul::scalar(1 + below(2));
    EXPECT_GT(check_plans(spec, config()), 0) << "case " << count;
  }
}

// Rows of a and b and columns of d lie 2^32 + 8 elements apart: an offset kept in 32 bits meets the wrong ones.
TEST_P(CudaMma, ElementsBeyond32BitOffsets) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 32) + 8;
  constexpr std::size_t kBytes = 2 * (static_cast<std::size_t>(kFar) + 24);
  std::size_t free = 0, total = 0;
  PMPP_ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  const DeviceMemory memory(free > kBytes + (std::size_t{1} << 30) ? kBytes : 0);
  if (memory.at(0) == nullptr) {
    GTEST_SKIP() << "needs " << kBytes << " bytes of device memory, " << free << " are free";
  }
  const auto put = [&](std::int64_t element, int value) {
    std::byte bits[2];
    store(dtype(), bits, {static_cast<long double>(value), 0, 0});
    EXPECT_EQ(cudaSuccess, cudaMemcpy(memory.at(2 * element), bits, 2, cudaMemcpyHostToDevice));
  };
  const auto get = [&](std::int64_t element) {
    std::byte bits[2];
    EXPECT_EQ(cudaSuccess, cudaMemcpy(bits, memory.at(2 * element), 2, cudaMemcpyDeviceToHost));
    return static_cast<double>(load(dtype(), bits).re);
  };
  put(0, 2), put(1, 3), put(kFar, -5), put(kFar + 1, 7);        // a
  put(8, 11), put(9, 13), put(kFar + 8, -1), put(kFar + 9, 4);  // b
  Problem p{};
  p.dtype = dtype();
  p.m = p.n = p.k = 2;
  p.a = {memory.at(0), kFar, 1, 0};
  p.b = {memory.at(16), kFar, 1, 0};
  p.d = {memory.at(32), 1, kFar, 0};
  int run = 0;
  for (const Plan& plan : matmul::mma_plans(p, current_device_facts())) {
    if (plan.config != config()) continue;
    ++run;
    PMPP_ASSERT_CUDA(matmul::launch(plan, p, test::current_device_facts(), nullptr, nullptr));
    PMPP_ASSERT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(get(16), 2 * 11 + 3 * -1);
    EXPECT_EQ(get(17), -5 * 11 + 7 * -1);
    EXPECT_EQ(get(kFar + 16), 2 * 13 + 3 * 4);
    EXPECT_EQ(get(kFar + 17), -5 * 13 + 7 * 4);
  }
  EXPECT_EQ(run, 1);
}

// Also the two launches of a split product can be captured, run nothing while they are, and give the result later.
TEST_P(CudaMma, IsCapturedOnItsStream) {
  MatmulCase spec{dtype(), 40, 48, 512};
  MatmulData first(spec);
  for (const Plan& plan : plans_of(first, config())) {
    const auto captured = [&](MatmulData& data) {
      Problem problem = data.problem();
      const DeviceMemory a(whole_words(data.a)), b(whole_words(data.b)), d(data.d.storage);
      const DeviceMemory workspace(std::vector<std::byte>(static_cast<std::size_t>(plan.workspace_bytes)));
      problem.a.data = a.at(data.a.offset_bytes());
      problem.b.data = b.at(data.b.offset_bytes());
      problem.d.data = d.at(data.d.offset_bytes());
      cudaStream_t stream = nullptr;
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      PMPP_ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      PMPP_ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
      PMPP_ASSERT_CUDA(matmul::launch(plan, problem, test::current_device_facts(), workspace.at(0), stream));
      PMPP_ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
      std::size_t nodes = 0;
      PMPP_ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
      EXPECT_EQ(nodes, plan.splits > 1 ? 2u : 1u);
      std::vector<std::byte> before = data.d.storage;
      d.read(before);
      EXPECT_EQ(before, data.d.storage) << "ran while it was only being captured";
      PMPP_ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
      PMPP_ASSERT_CUDA(cudaGraphLaunch(executable, stream));
      PMPP_ASSERT_CUDA(cudaStreamSynchronize(stream));
      d.read(data.d.storage);
      EXPECT_EQ(cudaSuccess, cudaGraphExecDestroy(executable));
      EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
      EXPECT_EQ(cudaSuccess, cudaStreamDestroy(stream));
    };
    check(Execute(captured), spec);
  }
}

// A plan that reads by cp.async is refused for operands that do not lie so, before anything reaches CUDA.
TEST_P(CudaMma, MisalignedOperandsAreRefused) {
  if (!tile().async) GTEST_SKIP() << "reads operands of any alignment";
  MatmulData data(MatmulCase{dtype(), 16, 16, 16});
  const std::vector<Plan> plans = plans_of(data, config());
  ASSERT_FALSE(plans.empty());
  const DeviceMemory memory(4096);
  Problem problem = data.problem();
  problem.a.data = memory.at(0);
  problem.b.data = memory.at(2);
  problem.d.data = memory.at(2048);
  EXPECT_EQ(matmul::launch(plans[0], problem, test::current_device_facts(), nullptr, nullptr), cudaErrorMisalignedAddress);
}

}  // namespace
}  // namespace pmpp::test
