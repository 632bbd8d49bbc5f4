// The CUDA transpose kernels against the oracle, also under compute-sanitizer; see cuda_matmul_test.cpp.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "csrc/padded_transpose/launch.hpp"
#include "csrc/padded_transpose/select.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/transpose_cases.hpp"

namespace pmpp::test {
namespace {

using transposition::Algorithm;
using transposition::Plan;
using transposition::Problem;

constexpr Algorithm kLadder[] = {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded, Algorithm::kPadded16,
                                 Algorithm::kVectorized};
// The kernels whose blocks stride on where a grid was clamped.
constexpr Algorithm kStriding[] = {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded, Algorithm::kPadded16};

// `one_block` cuts the grid down to a single block, which then has to stride over everything.
ExecuteTranspose on_cuda(Algorithm algorithm, bool one_block = false) {
  return [=](TransposeData& data) {
    Problem problem = data.problem();
    auto plan = transposition::select(problem, current_device_facts(), algorithm);
    ASSERT_TRUE(plan) << to_string(problem);
    ASSERT_EQ(plan->algorithm, algorithm);
    if (one_block) {
      plan->grid[0] = plan->grid[1] = plan->grid[2] = 1;
    }
    const DeviceMemory in(data.in.storage), out(data.out.storage);
    const DeviceMemory workspace(std::vector<std::byte>(static_cast<std::size_t>(plan->workspace_bytes)));
    problem.in = in.at(data.in.offset_bytes());
    problem.out = out.at(data.out.offset_bytes());
    PMPP_ASSERT_CUDA(transposition::launch(*plan, problem, workspace.at(0), nullptr)) << to_string(problem);
    PMPP_ASSERT_CUDA(cudaDeviceSynchronize()) << to_string(*plan) << " " << to_string(problem);
    out.read(data.out.storage);
  };
}

class CudaTranspose : public NeedsCuda<::testing::TestWithParam<std::tuple<Algorithm, int>>> {
 protected:
  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<Algorithm, int>>& info) {
  return std::string(transposition::algorithm_name(std::get<0>(info.param))) + "_" +
         std::to_string(std::get<1>(info.param)) + "_bytes";
}

INSTANTIATE_TEST_SUITE_P(All, CudaTranspose,
                         ::testing::Combine(::testing::ValuesIn(kLadder), ::testing::ValuesIn(kElementSizes)),
                         name_of_case);

TEST_P(CudaTranspose, MovesEveryElementAndNothingElse) { check_transposes(on_cuda(algorithm()), size(), {8, 16, 32}); }

class CudaTransposeStriding : public CudaTranspose {};

INSTANTIATE_TEST_SUITE_P(All, CudaTransposeStriding,
                         ::testing::Combine(::testing::ValuesIn(kStriding), ::testing::ValuesIn(kElementSizes)),
                         name_of_case);

TEST_P(CudaTransposeStriding, OneBlockStridesOverEverything) {
  check(on_cuda(algorithm(), true), TransposeCase{size(), 67, 70, 3});
}

class CudaTransposeLaunch : public NeedsCuda<::testing::TestWithParam<Algorithm>> {};

INSTANTIATE_TEST_SUITE_P(All, CudaTransposeLaunch, ::testing::ValuesIn(kLadder),
                         [](const auto& info) { return std::string(transposition::algorithm_name(info.param)); });

// More row tiles than grid.y or grid.z could hold, and more column tiles and batches than they do hold.
TEST_P(CudaTransposeLaunch, MoreThan65535TilesOnEachAxis) {
  constexpr std::int64_t beyond = 65535 * 32 + 35;
  check(on_cuda(GetParam()), TransposeCase{1, beyond, 2});
  check(on_cuda(GetParam()), TransposeCase{1, 2, beyond});
  check(on_cuda(GetParam()), TransposeCase{1, 2, 3, 65535 + 5});
}

TEST_P(CudaTransposeLaunch, ElementsBeyond32BitOffsets) {
  std::size_t free = 0, total = 0;
  PMPP_ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  const DeviceMemory memory(free > FarTranspose::kBytes + (std::size_t{1} << 30) ? FarTranspose::kBytes : 0);
  auto* const base = static_cast<std::int8_t*>(memory.at(0));
  if (base == nullptr) {
    GTEST_SKIP() << "needs " << FarTranspose::kBytes << " bytes of device memory, " << free << " are free";
  }
  for (const auto& [offset, value] : FarTranspose::kInputs) {
    PMPP_ASSERT_CUDA(cudaMemcpy(base + offset, &value, 1, cudaMemcpyHostToDevice));
  }
  const Problem problem = FarTranspose::problem(base);
  const auto plan = transposition::select(problem, current_device_facts(), GetParam());
  ASSERT_TRUE(plan);
  PMPP_ASSERT_CUDA(transposition::launch(*plan, problem, nullptr, nullptr));
  PMPP_ASSERT_CUDA(cudaDeviceSynchronize());
  for (const auto& [offset, expected] : FarTranspose::kOutputs) {
    std::int8_t actual = 0;
    PMPP_ASSERT_CUDA(cudaMemcpy(&actual, base + offset, 1, cudaMemcpyDeviceToHost));
    EXPECT_EQ(actual, expected) << "at " << offset;
  }
}

// A launch goes to the stream that it is given: captured there, it runs nothing until the graph is replayed.
TEST_P(CudaTransposeLaunch, IsCapturedOnItsStream) {
  const auto captured = [this](TransposeData& data) {
    Problem problem = data.problem();
    const auto plan = transposition::select(problem, current_device_facts(), GetParam());
    ASSERT_TRUE(plan);
    const DeviceMemory in(data.in.storage), out(data.out.storage);
    problem.in = in.at(data.in.offset_bytes());
    problem.out = out.at(data.out.offset_bytes());
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    PMPP_ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    PMPP_ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    PMPP_ASSERT_CUDA(transposition::launch(*plan, problem, nullptr, stream));
    PMPP_ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    PMPP_ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 1u);
    std::vector<std::byte> before = data.out.storage;
    out.read(before);
    EXPECT_EQ(before, data.out.storage) << "ran while it was only being captured";
    PMPP_ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    PMPP_ASSERT_CUDA(cudaGraphLaunch(executable, stream));
    PMPP_ASSERT_CUDA(cudaStreamSynchronize(stream));
    out.read(data.out.storage);
    EXPECT_EQ(cudaSuccess, cudaGraphExecDestroy(executable));
    EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
    EXPECT_EQ(cudaSuccess, cudaStreamDestroy(stream));
  };
  check(ExecuteTranspose(captured), TransposeCase{4, 33, 70});
}

class CudaTransposeErrors : public NeedsCuda<::testing::Test> {};

// Refused before anything reaches CUDA, and the next launch works.
TEST_F(CudaTransposeErrors, WrongPlansAndElementSizesAreRefused) {
  TransposeData data(TransposeCase{4, 5, 6});
  Problem problem = data.problem();
  const auto cpu_plan = transposition::select(problem, cpu_facts(1), Algorithm::kNaive);
  const auto cuda_plan = transposition::select(problem, current_device_facts(), Algorithm::kNaive);
  ASSERT_TRUE(cpu_plan && cuda_plan);
  EXPECT_EQ(transposition::launch(*cpu_plan, problem, nullptr, nullptr), cudaErrorInvalidValue);
  problem.element_size = 3;
  EXPECT_EQ(transposition::launch(*cuda_plan, problem, nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  check(on_cuda(Algorithm::kNaive), TransposeCase{4, 5, 6});
}

}  // namespace
}  // namespace pmpp::test
