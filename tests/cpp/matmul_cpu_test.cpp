#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/cpu/run.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {
namespace {

using matmul::Algorithm;
using matmul::Plan;
using matmul::Problem;

// An algorithm, for blocked on one instruction set.
struct Kernel {
  Algorithm algorithm;
  CpuIsa isa;
};

constexpr Kernel kKernels[] = {{Algorithm::kNaive, CpuIsa::kPortable},
                               {Algorithm::kBlocked, CpuIsa::kPortable},
                               {Algorithm::kBlocked, CpuIsa::kAvx2},
                               {Algorithm::kBlocked, CpuIsa::kAvx512}};

std::string to_string(const Kernel& kernel) {
  const std::string name = matmul::algorithm_name(kernel.algorithm);
  return kernel.algorithm == Algorithm::kNaive ? name : name + "_" + cpu_isa_name(kernel.isa);
}

Plan plan_for(const Problem& problem, const Kernel& kernel, int threads) {
  const auto plan = matmul::select(problem, cpu_facts(threads, kernel.isa), kernel.algorithm);
  EXPECT_TRUE(plan) << to_string(problem);
  return plan.value_or(Plan{});
}

// As many bytes as the plan asks for and no more, so that the sanitizers see an access beyond them. Without them, bytes
// that follow show whether anything was written there.
class Memory {
 public:
  std::unique_ptr<void, decltype(&std::free)> bytes;

  explicit Memory(std::int64_t size)
      : bytes(size > 0 ? std::aligned_alloc(64, static_cast<std::size_t>(round_up(size + kGuard, 64))) : nullptr,
              std::free),
        size_(size) {
    if (bytes) std::memset(bytes.get(), Buffer::kPoison, static_cast<std::size_t>(size + kGuard));
  }
  ~Memory() {
    const auto* const all = static_cast<const unsigned char*>(bytes.get());
    for (std::int64_t i = size_; bytes && i < size_ + kGuard; ++i) {
      EXPECT_EQ(all[i], static_cast<unsigned char>(Buffer::kPoison)) << i - size_ << " bytes behind " << size_;
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::int64_t kGuard = 0;
#else
  static constexpr std::int64_t kGuard = 4096;
#endif
  std::int64_t size_;
};

void run_tasks(const Plan& plan, const Problem& problem, const Memory& partials, std::int64_t begin, std::int64_t end) {
  const Memory scratch(plan.scratch_bytes);
  matmul::run_cpu(plan, problem, scratch.bytes.get(), partials.bytes.get(), begin, end);
}

void run_all(const Plan& plan, const Problem& problem) {
  const Memory partials(plan.workspace_bytes);
  run_tasks(plan, problem, partials, 0, plan.tasks);
  matmul::finish_cpu(plan, problem, partials.bytes.get());
}

class MatmulCpu : public ::testing::TestWithParam<std::tuple<Kernel, DType>> {
 protected:
  void SetUp() override {
    if (!has_cpu_isa(kernel().isa)) GTEST_SKIP() << "this machine has no " << cpu_isa_name(kernel().isa);
  }
  Kernel kernel() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  Execute execute(int threads = 2) const {
    return [kernel = kernel(), threads](MatmulData& data) {
      const Problem problem = data.problem();
      run_all(plan_for(problem, kernel, threads), problem);
    };
  }
};

INSTANTIATE_TEST_SUITE_P(All, MatmulCpu,
                         ::testing::Combine(::testing::ValuesIn(kKernels), ::testing::ValuesIn(kAllDTypes)),
                         [](const auto& info) {
                           return to_string(std::get<0>(info.param)) + "_" + dtype_name(std::get<1>(info.param));
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
    run_all(plan_for(problem, kernel(), 2), problem);
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

// Tiles of every instruction set end at multiples of 4, 6 or 14 rows and of 4 to 32 columns; slices of k at 256, or 512
// for small integers.
TEST_P(MatmulCpu, SizesAroundMicroTilesAndSlices) {
  check_sizes(execute(), dtype(), {6, 8, 9, 28, 32, 49});
  for (const std::int64_t k : {255, 256, 257, 511, 513, 1025}) check(execute(), MatmulCase{dtype(), 17, 33, k});
}

// Large enough for packed panels of both operands, for several slices of k and for sums outside the result.
TEST_P(MatmulCpu, PackedOperands) {
  for (const Layout a : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kReversed}) {
    for (const Layout b : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kReversed}) {
      MatmulCase spec{dtype(), 265, 61, 530};
      spec.a = a, spec.b = b, spec.d = a == Layout::kReversed ? Layout::kReversed : Layout::kRowMajor;
      check(execute(), spec);
    }
  }
}

// Products of a few rows or columns by a matrix, which is read in the order in which it lies: of up to 16 by
// contiguous columns, where k is 256 or more; of up to 3 otherwise; beyond 8 MB also by a row-major one.
TEST_P(MatmulCpu, VectorProducts) {
  for (const Layout layout : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kReversed}) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 133, 77},
                                  {2, 70, 150},
                                  {3, 9, 64},
                                  {133, 1, 77},
                                  {70, 2, 150},
                                  {1, 2100, 9},
                                  {7, 9, 257},
                                  {16, 70, 300},
                                  {70, 16, 300},
                                  {40, 5, 511},
                                  {2, 2100, 1010}}) {
      if (m == 2 && n == 2100 && (layout != Layout::kRowMajor || dtype() != DType::kFloat32)) continue;
      MatmulCase spec{dtype(), m, n, k};
      spec.a = spec.b = layout;
      check(execute(), spec);
      spec.a = Layout::kSliced, spec.odd_offset = 1;
      check(execute(), spec);
    }
  }
}

// Few rows by so much of b that it comes from memory, with sums in the result and outside of it, and columns that fill
// neither tile nor register.
TEST_P(MatmulCpu, FewRowsByALargeMatrix) {
  if (dtype() != DType::kFloat32 && dtype() != DType::kComplex64) GTEST_SKIP() << "the same code for each type";
  MatmulCase spec{dtype(), 5, 2101, 1010};
  check(execute(), spec);
  spec.a = Layout::kColumnMajor, spec.c = Layout::kRowMajor, spec.beta = matmul::scalar(2);
  check(execute(2), spec);
}

// Few outputs and many steps of k: threads sum parts of k, which are added up in a fixed order.
TEST_P(MatmulCpu, SplitK) {
  for (const auto& [m, n] : {std::array<std::int64_t, 2>{1, 1}, {3, 5}, {16, 16}, {7, 40}, {40, 1}}) {
    MatmulCase spec{dtype(), m, n, 24'577};
    spec.c = Layout::kRowMajor, spec.beta = matmul::scalar(2);
    if (dtype() == DType::kFloat16) spec.k = 8'193;  // sums of small integers stay below the largest float16
    MatmulData data(spec);
    const Plan plan = plan_for(data.problem(), kernel(), 8);
    if (kernel().algorithm == Algorithm::kBlocked && m * n > 100) {
      EXPECT_GT(plan.splits, 1) << matmul::to_string(plan);
    }
    check(execute(8), data);
    MatmulData again(spec);
    execute(8)(again);
    EXPECT_EQ(data.d.storage, again.d.storage);
  }
}

// Tasks in any order, in any division, on several threads at once: the same bits.
TEST_P(MatmulCpu, AnyPartitionOfTheTasksGivesTheSameBits) {
  MatmulCase spec{dtype(), 167, 300, 131, 2};
  spec.fill = Fill::kReal;
  MatmulData whole(spec);
  const Plan plan = plan_for(whole.problem(), kernel(), 16);
  ASSERT_GT(plan.tasks, 4);
  const Memory none(0);
  check(execute(16), whole);

  MatmulData backwards(spec);
  for (std::int64_t task = plan.tasks; task-- > 0;) run_tasks(plan, backwards.problem(), none, task, task + 1);
  EXPECT_EQ(whole.d.storage, backwards.d.storage);

  MatmulData uneven(spec);
  const std::int64_t cuts[] = {0, 1, 1, plan.tasks / 3, plan.tasks - 1, plan.tasks};
  for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) run_tasks(plan, uneven.problem(), none, cuts[i], cuts[i + 1]);
  EXPECT_EQ(whole.d.storage, uneven.d.storage);

  MatmulData threaded(spec);
  const Problem problem = threaded.problem();
  std::thread other([&] { run_tasks(plan, problem, none, 0, plan.tasks / 2); });
  run_tasks(plan, problem, none, plan.tasks / 2, plan.tasks);
  other.join();
  EXPECT_EQ(whole.d.storage, threaded.d.storage);
}

TEST_P(MatmulCpu, AnEmptyRangeOfTasksWritesNothing) {
  MatmulData data(MatmulCase{dtype(), 9, 10, 11});
  const Buffer untouched = data.d;
  const Plan plan = plan_for(data.problem(), kernel(), 2);
  const Memory none(0);
  run_tasks(plan, data.problem(), none, 0, 0);
  run_tasks(plan, data.problem(), none, plan.tasks, plan.tasks);
  EXPECT_EQ(untouched.storage, data.d.storage);
}

// The memory is only reserved; the few pages touched are all that is ever backed.
TEST(MatmulCpuFar, ElementsBeyond32BitOffsets) {
  for (const Kernel& kernel : kKernels) {
    if (!has_cpu_isa(kernel.isa)) continue;
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
    const Plan plan = plan_for(problem, kernel, 2);
    run_all(plan, problem);
    for (const auto& [offset, value] : FarMatmul::kOutputs) {
      EXPECT_EQ(base[offset], value) << matmul::to_string(plan) << " at " << offset;
    }
    munmap(memory, FarMatmul::kBytes);
  }
}

}  // namespace
}  // namespace pmpp::test
