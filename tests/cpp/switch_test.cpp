// The switch from C++: what replaces PyTorch's functions, and that they come back.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/cpp/ops_fixture.hpp"

namespace pmpp::test {
namespace {

class SwitchTest : public Ops {
 protected:
  // Calls of a function of PyTorch that ran here since the start.
  std::int64_t taken(const std::string& function) const {
    const auto counts = c10::Dispatcher::singleton()
                            .findSchemaOrThrow("pmpp::_stats", "")
                            .typed<c10::Dict<std::string, std::int64_t>()>()
                            .call();
    const auto found = counts.find("taken/" + std::string(on_cuda() ? "cuda" : "cpu") + "/" + function);
    return found == counts.end() ? 0 : found->value();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, SwitchTest, ::testing::Values(at::kCPU, at::kCUDA), device_name);

// The same results with and without it say nothing of which kernels ran.
TEST_P(SwitchTest, CallsRunHereWhileItIsOnAndNowhereElse) {
  const Tensor a = random({6, 7}, at::kFloat), b = random({7, 5}, at::kFloat), c = random({5}, at::kFloat);
  const auto calls = [&] {
    at::mm(a, b);
    at::addmm(c, a, b);
    at::bmm(a.unsqueeze(0), b.unsqueeze(0));
    at::baddbmm(c, a.unsqueeze(0), b.unsqueeze(0));
  };
  const std::vector<std::string> functions = {"mm", "addmm", "bmm", "baddbmm"};
  const auto all = [&] {
    std::vector<std::int64_t> counts;
    for (const std::string& function : functions) counts.push_back(taken(function));
    return counts;
  };
  const auto more = [](std::vector<std::int64_t> counts, std::int64_t by) {
    for (std::int64_t& count : counts) count += by;
    return counts;
  };
  const std::vector<std::int64_t> before = all();
  calls();
  EXPECT_EQ(all(), before);
  replace_mm(true, device().type());
  calls();
  EXPECT_EQ(all(), more(before, 1));
  replace_mm(false, device().type());
  calls();
  EXPECT_EQ(all(), more(before, 1));
  {
    const ReplaceMm scope(device().type());
    calls();
  }
  calls();
  EXPECT_EQ(all(), more(before, 2));
}

TEST_P(SwitchTest, ScopesNestAndExceptionsLeaveThem) {
  const Tensor a = whole({5, 7}).to(options(at::kDouble));
  const Tensor b = whole({7, 3}).to(options(at::kDouble));
  const Tensor expected = at::mm(a, b);
  try {
    const ReplaceMm outer(device().type());
    const ReplaceMm inner(device().type());
    EXPECT_TRUE(at::mm(a, b).equal(expected));
    at::mm(a, a);
    ADD_FAILURE() << "no exception";
  } catch (const c10::Error&) {
  }
  EXPECT_THROW(replace_mm(false, device().type()), c10::Error);
  EXPECT_TRUE(at::mm(a, b).equal(expected));
}

TEST_P(SwitchTest, AlphaBetaAndBiasOfEveryType) {
  for (const at::ScalarType dtype : kMatmulTypes) {
    if (on_cuda() && c10::isIntegralType(dtype, false)) continue;
    // Values that stay whole and small enough for 8 bits and for float16.
    const Tensor a = at::randint(0, 3, {2, 5, 4}, at::kLong);
    const Tensor b = at::randint(0, 3, {2, 4, 3}, at::kLong);
    const Tensor c = at::randint(0, 4, {3}, at::kLong);
    const Tensor expected = (at::bmm(a, b) * 3 + c * 2).to(dtype);
    const auto cast = [&](const Tensor& x) { return x.to(options(dtype)); };
    const ReplaceMm scope(device().type());
    EXPECT_TRUE(at::equal(at::baddbmm(cast(c), cast(a), cast(b), 2, 3).cpu(), expected)) << dtype;
    EXPECT_TRUE(at::equal(at::addmm(cast(c), cast(a[0]), cast(b[0]), 2, 3).cpu(), expected[0])) << dtype;
    Tensor out = at::empty({3, 5}, options(dtype)).t();
    at::addmm_out(out, cast(c), cast(a[1]), cast(b[1]), 2, 3);
    EXPECT_TRUE(at::equal(out.cpu(), expected[1])) << dtype;
  }
}

TEST_P(SwitchTest, ThreadsComputeWhileAnotherSwitches) {
  const Tensor a = whole({16, 16}).to(options(at::kDouble));
  const Tensor expected = at::mm(a, a);
  std::vector<std::thread> threads;
  std::vector<int> wrong(3);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      const at::NoGradGuard no_grad;
      for (int i = 0; i < 500; ++i) count += at::mm(a, a).equal(expected) ? 0 : 1;
    });
  }
  for (int i = 0; i < 500; ++i) const ReplaceMm scope(device().type());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

TEST(Switch, AnotherTypeOfDeviceIsRefused) {
  EXPECT_THROW(replace_mm(true, c10::kMeta), c10::Error);
  EXPECT_THROW(ReplaceMm(c10::kXPU), c10::Error);
}

#ifndef PMPP_WITH_CUDA
TEST(Switch, CudaIsRefusedInABuildWithoutIt) { EXPECT_THROW(replace_mm(true), c10::Error); }
#endif

}  // namespace
}  // namespace pmpp::test
