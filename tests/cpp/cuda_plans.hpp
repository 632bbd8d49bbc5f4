// What the tests of mma and wgmma share: the operands of a case on the device, and the plans that run on them.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/launch.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {

// An operand up to the end of its last aligned word of 16 bytes: the kernels may read what shares a word with an
// element.
inline std::vector<std::byte> whole_words(const Buffer& buffer) {
  std::vector<std::byte> bytes = buffer.storage;
  bytes.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(bytes.size()), 16)),
               std::byte{Buffer::kPoison});
  return bytes;
}

// Partial sums that are not written would add NaN.
inline DeviceMemory poisoned_workspace(std::int64_t bytes) {
  return DeviceMemory(std::vector<std::byte>(static_cast<std::size_t>(bytes), std::byte{Buffer::kPoison}));
}

class DeviceCase {
 public:
  explicit DeviceCase(MatmulData& data)
      : a_(whole_words(data.a)),
        b_(whole_words(data.b)),
        c_(data.c.storage),
        d_(data.d.storage),
        d_before_(data.d.storage),
        problem_(data.problem()) {
    problem_.a.data = a_.at(data.a.offset_bytes());
    problem_.b.data = b_.at(data.b.offset_bytes());
    problem_.c.data = c_.at(data.c.offset_bytes());
    problem_.d.data = d_.at(data.d.offset_bytes());
  }

  const matmul::Problem& problem() const { return problem_; }
  std::vector<matmul::Plan> plans(matmul::Algorithm algorithm) const {
    return matmul::plans(problem_, current_device_facts(), algorithm);
  }

  // Enqueues the product alone.
  cudaError_t launch(const matmul::Plan& plan, const DeviceMemory& workspace, cudaStream_t stream = nullptr) const {
    return matmul::launch(plan, problem_, current_device_facts(), workspace.at(0), stream);
  }
  // The product into a d that is as it was, guards and poison included; all of its memory afterwards.
  void run(const matmul::Plan& plan, std::vector<std::byte>& result) const {
    d_.write(d_before_);
    const DeviceMemory workspace = poisoned_workspace(plan.workspace_bytes);
    PMPP_ASSERT_CUDA(launch(plan, workspace)) << to_string(plan) << " " << to_string(problem_);
    PMPP_ASSERT_CUDA(cudaDeviceSynchronize()) << to_string(plan) << " " << to_string(problem_);
    read(result);
  }
  void read(std::vector<std::byte>& result) const {
    result.resize(d_before_.size());
    d_.read(result);
  }

 private:
  DeviceMemory a_, b_, c_, d_;
  std::vector<std::byte> d_before_;
  matmul::Problem problem_;
};

// Runs the plans and compares all of d and the memory around it. The oracle, which takes far longer than a GPU, judges
// the first result and every one that is not the same bits as one before.
inline void check_plans(MatmulData& data, const DeviceCase& on_device, const std::vector<matmul::Plan>& plans) {
  const Buffer untouched = data.d;
  std::vector<std::byte> right, result;
  for (const matmul::Plan& plan : plans) {
    on_device.run(plan, result);
    if (::testing::Test::HasFatalFailure()) return;
    if (result == right) continue;
    data.d.storage = result;
    expect_result(data, untouched, to_string(plan) + " for " + to_string(on_device.problem()));
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "offsets in bytes: a " << data.a.offset_bytes() << ", b " << data.b.offset_bytes() << ", d "
                    << data.d.offset_bytes();
      return;
    }
    right = result;
  }
}

// Captures a plan, which must make `nodes` launches and run nothing, and checks what the graph gives.
inline void check_captured(MatmulData& data, const DeviceCase& on_device, const matmul::Plan& plan, std::size_t nodes) {
  const Buffer untouched = data.d;
  const DeviceMemory workspace = poisoned_workspace(plan.workspace_bytes);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  PMPP_ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  PMPP_ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  PMPP_ASSERT_CUDA(on_device.launch(plan, workspace, stream)) << to_string(plan);
  PMPP_ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  std::size_t found = 0;
  PMPP_ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &found));
  EXPECT_EQ(found, nodes) << to_string(plan);
  std::vector<std::byte> before;
  on_device.read(before);
  EXPECT_EQ(before, untouched.storage) << to_string(plan) << " ran while it was only being captured";
  PMPP_ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (int replay = 0; replay < 2; ++replay) {
    PMPP_ASSERT_CUDA(cudaGraphLaunch(executable, stream));
    PMPP_ASSERT_CUDA(cudaStreamSynchronize(stream));
    on_device.read(data.d.storage);
    expect_result(data, untouched, to_string(plan) + " in a graph");
  }
  EXPECT_EQ(cudaSuccess, cudaGraphExecDestroy(executable));
  EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
  EXPECT_EQ(cudaSuccess, cudaStreamDestroy(stream));
}

// Calls check(spec, count) with each of a and b in every layout; those of d, and how far off their alignment the
// operands start, take turns.
template <class Check>
void check_every_layout(MatmulCase spec, const Check& check) {
  constexpr Layout kAll[] = {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced,     Layout::kSlicedColumnMajor,
                             Layout::kReversed, Layout::kSameRow,     Layout::kSameColumn, Layout::kSameElement};
  constexpr Layout kResults[] = {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kReversed};
  int count = 0;
  for (const Layout a : kAll) {
    for (const Layout b : kAll) {
      spec.a = a, spec.b = b, spec.d = kResults[count % 4];
      spec.odd_offset = count % 3;
      check(spec, count++);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Makes the lines of a and b start at multiples of 16 bytes, in whichever order they lie.
inline void align_lines(MatmulCase& spec) {
  const auto pad = [](std::int64_t line) { return static_cast<int>((8 - line % 8) % 8); };
  spec.a_pad = pad(spec.a == Layout::kRowMajor ? spec.k : spec.m);
  spec.b_pad = pad(spec.b == Layout::kRowMajor ? spec.n : spec.k);
}

}  // namespace pmpp::test
