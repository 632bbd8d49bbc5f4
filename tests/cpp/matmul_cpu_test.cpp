#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <thread>
#include <tuple>

#include "csrc/tiled_matmul/cpu/run.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {
namespace {

using matmul::Algorithm;
using matmul::Plan;
using matmul::Problem;

Plan plan_for(const Problem& problem, Algorithm algorithm) {
  const auto plan = matmul::select(problem, cpu_facts(2), algorithm);
  EXPECT_TRUE(plan) << to_string(problem);
  return plan.value_or(Plan{});
}

Execute on_cpu(Algorithm algorithm) {
  return [algorithm](MatmulData& data) {
    const Problem problem = data.problem();
    const Plan plan = plan_for(problem, algorithm);
    matmul::run_cpu(plan, problem, 0, plan.tasks);
  };
}

class MatmulCpu : public ::testing::TestWithParam<std::tuple<Algorithm, DType>> {
 protected:
  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  Execute execute() const { return on_cpu(algorithm()); }
};

INSTANTIATE_TEST_SUITE_P(All, MatmulCpu,
                         ::testing::Combine(::testing::Values(Algorithm::kNaive, Algorithm::kBlocked),
                                            ::testing::ValuesIn(kAllDTypes)),
                         [](const auto& info) {
                           return std::string(matmul::algorithm_name(std::get<0>(info.param))) + "_" +
                                  dtype_name(std::get<1>(info.param));
                         });

TEST_P(MatmulCpu, SizesAroundTileEdges) {
  check_sizes(execute(), dtype(), {4, 16, 64});
  // Edges of the columns and of k at 128 and of naive's pieces at 256, each with one side kept small.
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{2, 129, 127},
                                {3, 127, 129},
                                {65, 128, 128},
                                {2, 257, 3},
                                {3, 255, 5},
                                {129, 2, 257}}) {
    check(execute(), MatmulCase{dtype(), m, n, k});
  }
}

TEST_P(MatmulCpu, Layouts) {
  check_layouts(execute(), dtype(), 17, 9, 19);
  check_layouts(execute(), dtype(), 66, 130, 5);
}

TEST_P(MatmulCpu, Batches) { check_batches(execute(), dtype(), 65, 17, 5); }

TEST_P(MatmulCpu, Epilogue) { check_epilogue(execute(), dtype(), 9, 130, 11); }

TEST_P(MatmulCpu, BetaZeroNeverReadsC) {
  check_unread_c(execute(), dtype());
  // Nothing may be read through this pointer: the first page is never mapped.
  MatmulCase spec{dtype(), 5, 7, 3};
  const auto with_bad_c = [this](MatmulData& data) {
    Problem problem = data.problem();
    problem.c = {reinterpret_cast<const void*>(std::uintptr_t{64}), 7, 1, 35};
    const Plan plan = plan_for(problem, algorithm());
    matmul::run_cpu(plan, problem, 0, plan.tasks);
  };
  check(Execute(with_bad_c), spec);
}

TEST_P(MatmulCpu, NoInnerDimension) { check_no_inner(execute(), dtype()); }

TEST_P(MatmulCpu, RealValues) { check_real_values(execute(), dtype(), 67, 35, 300); }

TEST_P(MatmulCpu, OneRoundingAtTheEnd) { check_single_rounding(execute(), dtype(), 601); }

TEST_P(MatmulCpu, SpecialValuesOrWrapAround) {
  if (is_integer(dtype())) {
    check_wrap_around(execute(), dtype());
  } else {
    check_specials(execute(), dtype());
  }
}

TEST_P(MatmulCpu, Repeatable) { check_repeatable(execute(), dtype()); }

// Tasks in any order, in any division, on several threads at once: the same bits.
TEST_P(MatmulCpu, AnyPartitionOfTheTasksGivesTheSameBits) {
  MatmulCase spec{dtype(), 67, 300, 131, 2};
  spec.fill = Fill::kReal;
  MatmulData whole(spec);
  const Plan plan = plan_for(whole.problem(), algorithm());
  ASSERT_GT(plan.tasks, 4);
  check(execute(), whole);

  MatmulData backwards(spec);
  for (std::int64_t task = plan.tasks; task-- > 0;) {
    matmul::run_cpu(plan, backwards.problem(), task, task + 1);
  }
  EXPECT_EQ(whole.d.storage, backwards.d.storage);

  MatmulData uneven(spec);
  const std::int64_t cuts[] = {0, 1, 1, plan.tasks / 3, plan.tasks - 1, plan.tasks};
  for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
    matmul::run_cpu(plan, uneven.problem(), cuts[i], cuts[i + 1]);
  }
  EXPECT_EQ(whole.d.storage, uneven.d.storage);

  MatmulData threaded(spec);
  const Problem problem = threaded.problem();
  std::thread other([&] { matmul::run_cpu(plan, problem, 0, plan.tasks / 2); });
  matmul::run_cpu(plan, problem, plan.tasks / 2, plan.tasks);
  other.join();
  EXPECT_EQ(whole.d.storage, threaded.d.storage);
}

TEST_P(MatmulCpu, AnEmptyRangeOfTasksWritesNothing) {
  MatmulData data(MatmulCase{dtype(), 9, 10, 11});
  const Buffer untouched = data.d;
  const Plan plan = plan_for(data.problem(), algorithm());
  matmul::run_cpu(plan, data.problem(), 0, 0);
  matmul::run_cpu(plan, data.problem(), plan.tasks, plan.tasks);
  EXPECT_EQ(untouched.storage, data.d.storage);
}

// The memory is only reserved; the few pages touched are all that is ever backed.
TEST(MatmulCpuFar, ElementsBeyond32BitOffsets) {
  for (const Algorithm algorithm : {Algorithm::kNaive, Algorithm::kBlocked}) {
    void* memory =
        mmap(nullptr, FarMatmul::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      GTEST_SKIP() << "no address space for " << FarMatmul::kBytes << " bytes";
    }
    auto* const base = static_cast<std::int8_t*>(memory);
    for (const auto& [offset, value] : FarMatmul::kInputs) {
      base[offset] = value;
    }
    const Problem problem = FarMatmul::problem(base);
    const Plan plan = plan_for(problem, algorithm);
    matmul::run_cpu(plan, problem, 0, plan.tasks);
    for (const auto& [offset, value] : FarMatmul::kOutputs) {
      EXPECT_EQ(base[offset], value) << to_string(plan) << " at " << offset;
    }
    munmap(memory, FarMatmul::kBytes);
  }
}

}  // namespace
}  // namespace pmpp::test
