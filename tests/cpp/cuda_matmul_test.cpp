// The CUDA matmul kernels against the oracle, also under compute-sanitizer: allocations are exact, so that memcheck
// sees every overrun, and initialised, so that initcheck has nothing to report but a kernel's own mistakes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/tiled_matmul/launch.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {
namespace {

using matmul::Algorithm;
using matmul::Plan;
using matmul::Problem;

// An algorithm, and the most threads that the device is said to offer a block: tiled_dynamic takes 32-wide tiles with
// 1024, 16-wide ones with 256 and 8-wide ones with 64.
struct Variant {
  Algorithm algorithm;
  int max_threads;
  int tile;
};

constexpr Variant kFullVariants[] = {
    {Algorithm::kNaive, 1024, 16}, {Algorithm::kTiled, 1024, 16}, {Algorithm::kTiledDynamic, 1024, 32}};
constexpr Variant kNarrowVariants[] = {{Algorithm::kTiledDynamic, 256, 16}, {Algorithm::kTiledDynamic, 64, 8}};

std::string name_of(const Variant& variant) {
  return std::string(matmul::algorithm_name(variant.algorithm)) + "_" + std::to_string(variant.tile);
}

DeviceFacts facts_for(const Variant& variant) {
  DeviceFacts facts = current_device_facts();
  facts.max_threads_per_block = std::min(facts.max_threads_per_block, variant.max_threads);
  return facts;
}

Execute on_cuda(const Variant& variant) {
  return [variant](MatmulData& data) {
    Problem problem = data.problem();
    const auto plan = matmul::select(problem, facts_for(variant), variant.algorithm);
    ASSERT_TRUE(plan) << to_string(problem);
    ASSERT_EQ(plan->algorithm, variant.algorithm);
    ASSERT_EQ(plan->tile_m, variant.tile) << to_string(*plan);
    const DeviceMemory a(data.a.storage), b(data.b.storage), c(data.c.storage), d(data.d.storage);
    const DeviceMemory workspace(std::vector<std::byte>(static_cast<std::size_t>(plan->workspace_bytes)));
    problem.a.data = a.at(data.a.offset_bytes());
    problem.b.data = b.at(data.b.offset_bytes());
    problem.c.data = c.at(data.c.offset_bytes());
    problem.d.data = d.at(data.d.offset_bytes());
    PMPP_ASSERT_CUDA(matmul::launch(*plan, problem, test::current_device_facts(), workspace.at(0), nullptr)) << to_string(problem);
    PMPP_ASSERT_CUDA(cudaDeviceSynchronize()) << to_string(*plan) << " " << to_string(problem);
    d.read(data.d.storage);
  };
}

class CudaMatmul : public NeedsCuda<::testing::TestWithParam<std::tuple<Variant, DType>>> {
 protected:
  const Variant& variant() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  Execute execute() const { return on_cuda(variant()); }
};

std::string test_name(const ::testing::TestParamInfo<std::tuple<Variant, DType>>& info) {
  return name_of(std::get<0>(info.param)) + "_" + dtype_name(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, CudaMatmul,
                         ::testing::Combine(::testing::ValuesIn(kFullVariants), ::testing::ValuesIn(kAllDTypes)),
                         test_name);

TEST_P(CudaMatmul, MatchesTheOracle) { check_everything(execute(), dtype(), {variant().tile}); }

// The tiles of devices that offer a block fewer threads: the same kernel, so only what depends on the width.
using CudaMatmulNarrowTiles = CudaMatmul;

INSTANTIATE_TEST_SUITE_P(All, CudaMatmulNarrowTiles,
                         ::testing::Combine(::testing::ValuesIn(kNarrowVariants), ::testing::ValuesIn(kAllDTypes)),
                         test_name);

TEST_P(CudaMatmulNarrowTiles, MatchTheOracle) {
  check_sizes(execute(), dtype(), {variant().tile});
  check_layouts(execute(), dtype(), 17, 9, 19);
  check_real_values(execute(), dtype(), 19, 33, 40);
  check_single_rounding(execute(), dtype(), 601);
}

class CudaMatmulLaunch : public NeedsCuda<::testing::TestWithParam<Variant>> {};

INSTANTIATE_TEST_SUITE_P(All, CudaMatmulLaunch, ::testing::ValuesIn(kFullVariants),
                         [](const auto& info) { return name_of(info.param); });

// More row tiles than grid.y or grid.z could hold, and more column tiles and batches than they do hold.
TEST_P(CudaMatmulLaunch, MoreThan65535TilesOnEachAxis) {
  const std::int64_t beyond = 65535 * static_cast<std::int64_t>(GetParam().tile) + GetParam().tile + 3;
  check(on_cuda(GetParam()), MatmulCase{DType::kInt8, beyond, 1, 2});
  check(on_cuda(GetParam()), MatmulCase{DType::kInt8, 1, beyond, 2});
  check(on_cuda(GetParam()), MatmulCase{DType::kInt8, 2, 1, 2, 65535 + 5});
}

// Block strides and batch strides within one clamped grid: a plan with a single block must still do everything.
TEST_P(CudaMatmulLaunch, OneBlockStridesOverEverything) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64}) {
    const auto with_one_block = [this](MatmulData& data) {
      Problem problem = data.problem();
      auto plan = matmul::select(problem, facts_for(GetParam()), GetParam().algorithm);
      ASSERT_TRUE(plan);
      plan->grid[0] = plan->grid[1] = plan->grid[2] = 1;
      const DeviceMemory a(data.a.storage), b(data.b.storage), d(data.d.storage);
      problem.a.data = a.at(data.a.offset_bytes());
      problem.b.data = b.at(data.b.offset_bytes());
      problem.d.data = d.at(data.d.offset_bytes());
      PMPP_ASSERT_CUDA(matmul::launch(*plan, problem, test::current_device_facts(), nullptr, nullptr));
      PMPP_ASSERT_CUDA(cudaDeviceSynchronize());
      d.read(data.d.storage);
    };
    check(Execute(with_one_block), MatmulCase{dtype, 67, 70, 35, 3});
  }
}

TEST_P(CudaMatmulLaunch, ElementsBeyond32BitOffsets) {
  std::size_t free = 0, total = 0;
  PMPP_ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  const DeviceMemory memory(free > FarMatmul::kBytes + (std::size_t{1} << 30) ? FarMatmul::kBytes : 0);
  auto* const base = static_cast<std::int8_t*>(memory.at(0));
  if (base == nullptr) {
    GTEST_SKIP() << "needs " << FarMatmul::kBytes << " bytes of device memory, " << free << " are free";
  }
  for (const auto& [offset, value] : FarMatmul::kInputs) {
    PMPP_ASSERT_CUDA(cudaMemcpy(base + offset, &value, 1, cudaMemcpyHostToDevice));
  }
  const Problem problem = FarMatmul::problem(base);
  const auto plan = matmul::select(problem, facts_for(GetParam()), GetParam().algorithm);
  ASSERT_TRUE(plan);
  PMPP_ASSERT_CUDA(matmul::launch(*plan, problem, test::current_device_facts(), nullptr, nullptr));
  PMPP_ASSERT_CUDA(cudaDeviceSynchronize());
  for (const auto& [offset, expected] : FarMatmul::kOutputs) {
    std::int8_t actual = 0;
    PMPP_ASSERT_CUDA(cudaMemcpy(&actual, base + offset, 1, cudaMemcpyDeviceToHost));
    EXPECT_EQ(actual, expected) << "at " << offset;
  }
}

// A launch goes to the stream that it is given, allocates nothing and waits for nothing: it can be captured, runs
// nothing while it is, and gives the result when the graph is replayed.
TEST_P(CudaMatmulLaunch, IsCapturedOnItsStream) {
  const auto captured = [this](MatmulData& data) {
    Problem problem = data.problem();
    const auto plan = matmul::select(problem, facts_for(GetParam()), GetParam().algorithm);
    ASSERT_TRUE(plan);
    const DeviceMemory a(data.a.storage), b(data.b.storage), d(data.d.storage);
    problem.a.data = a.at(data.a.offset_bytes());
    problem.b.data = b.at(data.b.offset_bytes());
    problem.d.data = d.at(data.d.offset_bytes());
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    PMPP_ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    PMPP_ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    PMPP_ASSERT_CUDA(matmul::launch(*plan, problem, test::current_device_facts(), nullptr, stream));
    PMPP_ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    PMPP_ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 1u);
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
  check(Execute(captured), MatmulCase{DType::kFloat32, 33, 35, 37});
}

class CudaMatmulErrors : public NeedsCuda<::testing::Test> {};

// A plan for another device is refused before anything reaches CUDA, and the next launch works.
TEST_F(CudaMatmulErrors, ACpuPlanIsRefused) {
  MatmulData data(MatmulCase{DType::kFloat32, 5, 6, 7});
  const Problem problem = data.problem();
  const auto plan = matmul::select(problem, cpu_facts(1), Algorithm::kNaive);
  ASSERT_TRUE(plan);
  EXPECT_EQ(matmul::launch(*plan, problem, test::current_device_facts(), nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  check(on_cuda(kFullVariants[0]), MatmulCase{DType::kFloat32, 5, 6, 7});
}

}  // namespace
}  // namespace pmpp::test

// Exit status 77 tells ctest that nothing could run here.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  return failed == 0 && !pmpp::test::has_cuda_device() ? 77 : failed;
}
