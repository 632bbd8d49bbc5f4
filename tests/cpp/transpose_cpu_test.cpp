#include <gtest/gtest.h>
#include <sys/mman.h>

#include <limits>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "csrc/padded_transpose/cpu/run.hpp"
#include "csrc/padded_transpose/select.hpp"
#include "tests/cpp/transpose_cases.hpp"

namespace pmpp::test {
namespace {

using transposition::Algorithm;
using transposition::Plan;
using transposition::Problem;

// An algorithm, for blocked on one instruction set, through the caches or past them.
struct Kernel {
  Algorithm algorithm;
  CpuIsa isa;
  bool streamed = false;
};

constexpr Kernel kKernels[] = {
    {Algorithm::kNaive, CpuIsa::kPortable},         {Algorithm::kBlocked, CpuIsa::kPortable},
    {Algorithm::kBlocked, CpuIsa::kAvx2},           {Algorithm::kBlocked, CpuIsa::kAvx512},
    {Algorithm::kBlocked, CpuIsa::kPortable, true}, {Algorithm::kBlocked, CpuIsa::kAvx2, true},
    {Algorithm::kBlocked, CpuIsa::kAvx512, true}};

Plan plan_for(const Problem& problem, const Kernel& kernel) {
  const std::int64_t from = kernel.streamed ? 0 : std::numeric_limits<std::int64_t>::max();
  const auto plan = transposition::select(problem, cpu_facts(2, kernel.isa, from), kernel.algorithm);
  EXPECT_TRUE(plan) << to_string(problem);
  return plan.value_or(Plan{});
}

class TransposeCpu : public ::testing::TestWithParam<std::tuple<Kernel, int>> {
 protected:
  void SetUp() override {
    if (!has_cpu_isa(kernel().isa)) GTEST_SKIP() << "this machine has no " << cpu_isa_name(kernel().isa);
  }
  Kernel kernel() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  ExecuteTranspose execute() const {
    return [kernel = kernel()](TransposeData& data) {
      const Problem problem = data.problem();
      const Plan plan = plan_for(problem, kernel);
      transposition::run_cpu(plan, problem, 0, plan.tasks);
    };
  }
};

INSTANTIATE_TEST_SUITE_P(All, TransposeCpu,
                         ::testing::Combine(::testing::ValuesIn(kKernels), ::testing::ValuesIn(kElementSizes)),
                         [](const auto& info) {
                           const Kernel kernel = std::get<0>(info.param);
                           std::string name = transposition::algorithm_name(kernel.algorithm);
                           if (kernel.algorithm != Algorithm::kNaive)
                             name += std::string("_") + cpu_isa_name(kernel.isa);
                           if (kernel.streamed) name += "_streamed";
                           return name + "_" + std::to_string(std::get<1>(info.param)) + "_bytes";
                         });

TEST_P(TransposeCpu, MovesEveryElementAndNothingElse) { check_transposes(execute(), size(), {8, 16, 32, 64, 256}); }

// Results past the caches from the size on that the device says, in tiles alone.
TEST(TransposeCpuPlan, StreamsLargeResults) {
  TransposeData data(TransposeCase{4, 300, 200});
  const Problem problem = data.problem();
  const auto streams = [](const Problem& p, std::int64_t from) {
    return transposition::select(p, cpu_facts(1, CpuIsa::kPortable, from), Algorithm::kBlocked)->is_streamed;
  };
  EXPECT_TRUE(streams(problem, 300 * 200 * 4));
  EXPECT_FALSE(streams(problem, 300 * 200 * 4 + 1));
  Problem narrow = problem;
  narrow.n = 3;
  EXPECT_FALSE(streams(narrow, 0));
  Problem odd = problem;
  odd.out = static_cast<std::uint8_t*>(odd.out) + 1;
  EXPECT_FALSE(streams(odd, 0));
}

// Every remainder of a tile, at every position within a cache line, with rows of whole lines and of others.
TEST_P(TransposeCpu, TilesAnywhere) {
  for (const std::int64_t m : {64 / size(), 256 / size() + 1, 300, 1030}) {
    for (const std::int64_t n : {64 / size(), 256 / size() + 3, 333}) {
      for (int residue = 0; residue < 64; residue += 16) {
        PlacedTranspose spec{.element_size = size(), .m = m, .n = n};
        spec.in.residue = residue;
        spec.out.residue = 64 - residue;
        spec.in.pitch = n + residue;
        spec.out.pitch = m + residue;
        spec.guarded = residue != 32;
        check(execute(), TransposeData(spec));
      }
    }
  }
}

// Tasks in any order, in any division, on several threads at once: the same bytes.
TEST_P(TransposeCpu, AnyPartitionOfTheTasksGivesTheSameBytes) {
  const TransposeCase spec{size(), 1100, 263, 2};
  TransposeData whole(spec);
  const Plan plan = plan_for(whole.problem(), kernel());
  ASSERT_GE(plan.tasks, 4);
  check(execute(), spec);
  execute()(whole);

  TransposeData backwards(spec);
  for (std::int64_t task = plan.tasks; task-- > 0;) {
    transposition::run_cpu(plan, backwards.problem(), task, task + 1);
  }
  EXPECT_EQ(whole.out.storage, backwards.out.storage);

  TransposeData threaded(spec);
  const Problem problem = threaded.problem();
  std::thread other([&] { transposition::run_cpu(plan, problem, 0, plan.tasks / 2); });
  transposition::run_cpu(plan, problem, plan.tasks / 2, plan.tasks);
  other.join();
  EXPECT_EQ(whole.out.storage, threaded.out.storage);
}

TEST_P(TransposeCpu, AnEmptyRangeOfTasksWritesNothing) {
  TransposeData data(TransposeCase{size(), 9, 10});
  const Buffer untouched = data.out;
  const Plan plan = plan_for(data.problem(), kernel());
  transposition::run_cpu(plan, data.problem(), 0, 0);
  transposition::run_cpu(plan, data.problem(), plan.tasks, plan.tasks);
  EXPECT_EQ(untouched.storage, data.out.storage);
}

// The memory is only reserved; the few pages touched are all that is ever backed.
TEST(TransposeCpuFar, ElementsBeyond32BitOffsets) {
  for (const Kernel& kernel : kKernels) {
    if (!has_cpu_isa(kernel.isa)) continue;
    void* memory =
        mmap(nullptr, FarTranspose::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      GTEST_SKIP() << "no address space for " << FarTranspose::kBytes << " bytes";
    }
    auto* const base = static_cast<std::int8_t*>(memory);
    for (const auto& [offset, value] : FarTranspose::kInputs) {
      base[offset] = value;
    }
    const Problem problem = FarTranspose::problem(base);
    const Plan plan = plan_for(problem, kernel);
    transposition::run_cpu(plan, problem, 0, plan.tasks);
    for (const auto& [offset, value] : FarTranspose::kOutputs) {
      EXPECT_EQ(base[offset], value) << to_string(plan) << " at " << offset;
    }
    munmap(memory, FarTranspose::kBytes);
  }
}

}  // namespace
}  // namespace pmpp::test
