// The public C++ interface (ops/pmpp.h) with real tensors: what a LibTorch program sees. Every test runs on the CPU
// and, where there is one, on a GPU.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/pmpp.h"
#include "tests/cpp/ops_fixture.hpp"

namespace pmpp::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Devices, Ops, ::testing::Values(at::kCPU, at::kCUDA), device_name);

TEST(Version, IsTheOneOfThisRelease) { EXPECT_STREQ(pmpp::version(), "0.1.0"); }

TEST_P(Ops, MatmulGivesTheExactProductOfWholeNumbers) {
  const Tensor a = whole({33, 35});
  const Tensor b = whole({35, 17});
  const Tensor product = at::mm(a, b);
  for (const at::ScalarType dtype : kMatmulTypes) {
    const Tensor expected = product.to(dtype);
    const Tensor x = a.to(options(dtype));
    const Tensor y = b.to(options(dtype));
    for (const char* algorithm : matmul_algorithms()) {
      for (const Tensor& left : {x, x.t().contiguous().t()}) {
        for (const Tensor& right : {y, y.t().contiguous().t()}) {
          const Tensor actual = pmpp::tiled_matmul(left, right, algorithm);
          EXPECT_EQ(actual.scalar_type(), dtype);
          EXPECT_TRUE(at::equal(actual.cpu(), expected)) << algorithm << " " << dtype;
        }
      }
    }
  }
}

TEST_P(Ops, MatmulAgreesWithMm) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
    const bool single = dtype == at::kFloat || dtype == at::kComplexFloat;
    const Tensor a = random({65, 130}, dtype);
    const Tensor b = random({130, 33}, dtype);
    for (const char* algorithm : matmul_algorithms()) {
      const Tensor actual = pmpp::tiled_matmul(a, b, algorithm);
      EXPECT_TRUE(at::allclose(actual, at::mm(a, b), single ? 1e-4 : 1e-12, single ? 1e-4 : 1e-12))
          << algorithm << " " << dtype;
    }
  }
}

TEST_P(Ops, MatmulReadsAnyStrides) {
  const Tensor base = whole({40, 60}).to(options(at::kFloat));
  const std::pair<Tensor, Tensor> cases[] = {
      {base.slice(1, 1, 60, 2), base.slice(0, 0, 30)},                  // every second column, odd base
      {base.slice(0, 3, 20, 3).slice(1, 5, 25), base.slice(0, 7, 27)},  // every third row
      {base.select(1, 0).unsqueeze(1).expand({40, 60}), base.t()},      // stride 0
      {base.t(), base.select(0, 2).unsqueeze(0).expand({40, 60})},
  };
  for (const auto& [a, b] : cases) {
    for (const char* algorithm : matmul_algorithms()) {
      const Tensor actual = pmpp::tiled_matmul(a, b, algorithm);
      EXPECT_TRUE(at::equal(actual, at::mm(a, b))) << algorithm << " " << a.strides() << " " << b.strides();
      EXPECT_TRUE(actual.is_contiguous());
    }
  }
}

// A call inside a parallel region starts no threads of its own: its plan is made for one, its result has the same bits.
TEST(CpuThreads, CallsWithinAParallelRegionStaySerial) {
#ifndef _OPENMP
  GTEST_SKIP() << "compiled without OpenMP";
#endif
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  const Tensor a = at::randn({512, 300}), b = at::randn({300, 400});
  const auto plan_op = c10::Dispatcher::singleton().findSchemaOrThrow("pmpp::_tiled_matmul_plan", "");
  const auto plan_of = [&] {
    return plan_op.typed<std::string(const Tensor&, const Tensor&, c10::string_view)>().call(a, b, "blocked");
  };
  EXPECT_NE(plan_of().find("tasks 2"), std::string::npos) << plan_of();

  std::array<std::string, 2> plans;
  std::array<Tensor, 2> products, transposes;
  std::array<bool, 2> inside = {false, false};
  at::parallel_for(0, 2, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      inside[i] = at::in_parallel_region();
      plans[i] = plan_of();
      products[i] = pmpp::tiled_matmul(a, b);
      transposes[i] = pmpp::padded_transpose(a);
    }
  });
  at::set_num_threads(1);
  const Tensor product = pmpp::tiled_matmul(a, b);
  at::set_num_threads(threads);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(inside[i]);
    EXPECT_NE(plans[i].find("tasks 1"), std::string::npos) << plans[i];
    EXPECT_TRUE(at::equal(products[i], product));
    EXPECT_TRUE(at::equal(transposes[i], a.t()));
  }
}

TEST_P(Ops, MatmulOfNothingLooksAtNeitherDtypeNorAlgorithm) {
  const Tensor none = pmpp::tiled_matmul(at::empty({0, 3}, options(at::kBool)), at::empty({3, 4}, options(at::kFloat)),
                                         "no such algorithm");
  EXPECT_EQ(none.sizes(), (std::vector<std::int64_t>{0, 4}));
  const Tensor zeros = pmpp::tiled_matmul(at::empty({2, 0}, options(at::kFloat)),
                                          at::empty({0, 4}, options(at::kFloat)), "no such algorithm");
  EXPECT_TRUE(at::equal(zeros, at::zeros({2, 4}, options(at::kFloat))));
}

TEST_P(Ops, ConjugateNegativeAndZeroTensorsAreResolved) {
  const Tensor a = random({5, 6}, at::kComplexDouble);
  const Tensor b = random({6, 7}, at::kComplexDouble);
  EXPECT_TRUE(at::allclose(pmpp::tiled_matmul(a.conj(), b), at::mm(a.conj(), b)));
  EXPECT_TRUE(at::allclose(pmpp::tiled_matmul(a, b.conj()), at::mm(a, b.conj())));
  const Tensor negative = at::imag(a.conj());
  ASSERT_TRUE(negative.is_neg());
  EXPECT_TRUE(at::allclose(pmpp::tiled_matmul(negative, at::real(b)), at::mm(negative, at::real(b))));
  EXPECT_TRUE(at::equal(pmpp::padded_transpose(a.conj()), a.conj().t().resolve_conj().contiguous()));
  EXPECT_TRUE(at::equal(pmpp::padded_transpose(negative), negative.t().resolve_neg().contiguous()));
  const Tensor zero = at::_efficientzerotensor({6, 7}, options(at::kComplexDouble));
  EXPECT_TRUE(at::equal(pmpp::tiled_matmul(a, zero), at::zeros({5, 7}, options(at::kComplexDouble))));
}

TEST_P(Ops, OutIsFilledReturnedAndKeepsItsStrides) {
  const Tensor a = whole({9, 11}).to(options(at::kFloat));
  const Tensor b = whole({11, 6}).to(options(at::kFloat));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor storage = at::full({20, 20}, nan, options(at::kFloat));
  for (Tensor out : {storage.slice(0, 1, 10).slice(1, 2, 14, 2), storage.slice(0, 1, 7).slice(1, 3, 12).t()}) {
    storage.fill_(nan);
    const auto strides = out.strides().vec();
    const Tensor& returned = pmpp::tiled_matmul_out(out, a, b);
    EXPECT_TRUE(returned.is_same(out));
    EXPECT_EQ(out.strides().vec(), strides);
    EXPECT_TRUE(at::equal(out, at::mm(a, b)));
    EXPECT_EQ(at::isnan(storage).sum().item<std::int64_t>(), 400 - 54) << "written outside out";

    storage.fill_(nan);
    Tensor transposed = out.t();
    const Tensor x = at::mm(a, b);
    EXPECT_TRUE(pmpp::padded_transpose_out(transposed, x).is_same(transposed));
    EXPECT_TRUE(at::equal(transposed, x.t()));
    EXPECT_EQ(at::isnan(storage).sum().item<std::int64_t>(), 400 - 54) << "written outside out";
  }
}

TEST_P(Ops, OutOfAnotherShapeIsResizedWithAWarning) {
  const Tensor a = whole({3, 4}).to(options(at::kFloat));
  const Tensor b = whole({4, 5}).to(options(at::kFloat));
  for (const bool empty : {false, true}) {
    CountWarnings warnings;
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    Tensor out = at::empty({empty ? 0 : 2}, options(at::kFloat));
    EXPECT_TRUE(pmpp::tiled_matmul_out(out, a, b).is_same(out));
    EXPECT_TRUE(at::equal(out, at::mm(a, b)));
    Tensor transposed = at::empty({empty ? 0 : 2}, options(at::kFloat));
    pmpp::padded_transpose_out(transposed, a);
    EXPECT_TRUE(at::equal(transposed, a.t()));
    EXPECT_EQ(warnings.count, empty ? 0 : 2) << warnings.last;
    if (!empty) {
      EXPECT_NE(warnings.last.find("resized"), std::string::npos) << warnings.last;
    }
  }
}

TEST_P(Ops, OutBesideItsOperandsInOneStorageIsNoOverlap) {
  const Tensor storage = whole({6, 6}).to(options(at::kFloat));
  const Tensor a = storage.slice(1, 0, 6, 2).slice(0, 0, 3);
  Tensor out = storage.slice(1, 1, 6, 2).slice(0, 0, 3);
  const Tensor expected = at::mm(a.clone(), a.clone());
  EXPECT_TRUE(at::equal(pmpp::tiled_matmul_out(out, a, a), expected));
}

TEST_P(Ops, TransposeMovesEveryDtypeBitForBit) {
  for (const at::ScalarType dtype :
       {at::kBool,          at::kByte,          at::kChar,        at::kShort,           at::kInt,
        at::kLong,          at::kUInt16,        at::kUInt32,      at::kUInt64,          at::kHalf,
        at::kBFloat16,      at::kFloat,         at::kDouble,      at::kComplexHalf,     at::kComplexFloat,
        at::kComplexDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz,
        at::kFloat8_e8m0fnu}) {
    const auto size = static_cast<std::int64_t>(c10::elementSize(dtype));
    const Tensor bytes = at::randint(0, dtype == at::kBool ? 2 : 256, {35, 33 * size}, options(at::kByte));
    const Tensor expected = bytes.view({35, 33, size}).transpose(0, 1).contiguous().view({33, 35 * size});
    for (const char* algorithm : transpose_algorithms()) {
      const Tensor actual = pmpp::padded_transpose(bytes.view(dtype), algorithm);
      EXPECT_EQ(actual.scalar_type(), dtype);
      EXPECT_TRUE(at::equal(actual.view(at::kByte), expected)) << algorithm << " " << dtype;
    }
  }
}

TEST_P(Ops, TransposeIsAlwaysFreshAndRowMajor) {
  const Tensor wide = random({6, 8}, at::kFloat);
  for (const Tensor& x : {wide, wide.t(), wide.slice(0, 0, 1), wide.slice(1, 0, 1), wide.slice(1, 1, 8, 3),
                          wide.select(0, 0).unsqueeze(0).expand({5, 8}), wide.select(0, 1),
                          wide.select(0, 0).select(0, 0), wide.slice(0, 0, 0), wide.slice(1, 0, 0)}) {
    for (const char* algorithm : transpose_algorithms()) {
      const Tensor actual = pmpp::padded_transpose(x, algorithm);
      EXPECT_TRUE(at::equal(actual, x.t())) << algorithm << " " << x.sizes() << " " << x.strides();
      EXPECT_TRUE(actual.is_contiguous());
      EXPECT_EQ(actual.strides(), at::empty_like(x.t(), at::MemoryFormat::Contiguous).strides()) << x.sizes();
      EXPECT_FALSE(actual.is_alias_of(x));
    }
  }
}

TEST_P(Ops, TransposeFunctionReturnsTheViewWhereThatIsContiguous) {
  const Tensor x = random({6, 8}, at::kFloat);
  for (const Tensor& view : {x.t(), x.slice(0, 0, 1), x.select(0, 0), x.select(0, 0).select(0, 0)}) {
    const Tensor actual = pmpp::transpose(view);
    EXPECT_TRUE(actual.is_alias_of(view)) << view.sizes() << " " << view.strides();
    EXPECT_TRUE(at::equal(actual, view.t()));
  }
  for (const char* algorithm : transpose_algorithms()) {
    const Tensor moved = pmpp::transpose(x, algorithm);
    EXPECT_FALSE(moved.is_alias_of(x));
    EXPECT_TRUE(moved.is_contiguous());
    EXPECT_TRUE(at::equal(moved, x.t()));
  }
}

using Gradients = std::vector<Tensor>;

// First and second derivatives of a function that is not linear in the product.
Gradients derivatives(const std::function<Tensor(const Tensor&, const Tensor&)>& product, const Tensor& a,
                      const Tensor& b) {
  const Tensor x = a.detach().clone().requires_grad_();
  const Tensor y = b.detach().clone().requires_grad_();
  const Tensor z = product(x, y);
  const Tensor loss = at::real(z * z.conj()).pow(2).sum();
  const Gradients first = torch::autograd::grad({loss}, {x, y}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  const Tensor again = at::real(first[0] * first[0].conj()).sum() + at::real(first[1] * first[1].conj()).sum();
  const Gradients second = torch::autograd::grad({again}, {x, y});
  return {first[0].detach(), first[1].detach(), second[0], second[1]};
}

TEST_P(Ops, BackwardAndDoubleBackwardAgreeWithMm) {
  for (const at::ScalarType dtype : {at::kDouble, at::kComplexDouble}) {
    const Tensor a = random({5, 7}, dtype);
    const Tensor b = random({7, 4}, dtype);
    const auto ours = [](const Tensor& x, const Tensor& y) { return pmpp::tiled_matmul(x, y); };
    const auto theirs = [](const Tensor& x, const Tensor& y) { return at::mm(x, y); };
    const auto ours_transposed = [](const Tensor& x, const Tensor& y) {
      return pmpp::padded_transpose(pmpp::tiled_matmul(pmpp::padded_transpose(x).t(), y));
    };
    const Gradients expected = derivatives(theirs, a, b);
    for (const auto& product : {std::function<Tensor(const Tensor&, const Tensor&)>(ours), {ours_transposed}}) {
      const Gradients actual = derivatives(product, a, b);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-9, 1e-9)) << dtype << ", derivative " << i;
      }
    }
  }
}

TEST_P(Ops, NothingIsRecordedWhenNothingRequiresGrad) {
  const Tensor a = random({3, 3}, at::kFloat);
  EXPECT_FALSE(pmpp::tiled_matmul(a, a).requires_grad());
  EXPECT_FALSE(pmpp::padded_transpose(a).requires_grad());
  const Tensor leaf = a.clone().requires_grad_();
  EXPECT_EQ(pmpp::tiled_matmul(leaf, a).grad_fn()->name(), "TiledMatmulBackward");
  EXPECT_EQ(pmpp::padded_transpose(leaf).grad_fn()->name(), "PaddedTransposeBackward");
  const c10::NoGradGuard guard;
  EXPECT_FALSE(pmpp::tiled_matmul(leaf, a).requires_grad());
  EXPECT_FALSE(pmpp::padded_transpose(leaf).requires_grad());
}

// Only the operand that a wanted gradient needs is saved, and writing to that one is noticed.
TEST_P(Ops, SavedOperandsAreVersionChecked) {
  const Tensor a = random({3, 4}, at::kDouble).requires_grad_();
  const Tensor b = random({4, 5}, at::kDouble);
  const auto write = [](const Tensor& x) {
    const c10::NoGradGuard guard;
    x.add_(1);
  };
  const Tensor unharmed = pmpp::tiled_matmul(a, b).sum();
  write(a);
  EXPECT_TRUE(at::allclose(torch::autograd::grad({unharmed}, {a})[0], b.sum(1).expand({3, 4})));

  const auto expect_noticed = [&](const Tensor& loss) {
    try {
      torch::autograd::grad({loss}, {a});
      ADD_FAILURE() << "a changed operand was not noticed";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("modified by an inplace operation"), std::string::npos) << error.what();
    }
  };
  const Tensor harmed = pmpp::tiled_matmul(a, b).sum();
  write(b);
  expect_noticed(harmed);

  // An out= write counts as one.
  Tensor saved = random({4, 5}, at::kDouble);
  const Tensor harmed_by_out = pmpp::tiled_matmul(a, saved).sum();
  pmpp::padded_transpose_out(saved, random({5, 4}, at::kDouble));
  expect_noticed(harmed_by_out);
}

// The rows of the contract's errors. "RuntimeError" is c10::Error itself.

TEST_P(Ops, ErrorNdim) {
  const Tensor matrix = random({3, 3}, at::kFloat);
  const Tensor vector = random({3}, at::kFloat);
  const Tensor cube = random({2, 3, 4}, at::kFloat);
  expect_error<c10::Error>([&] { pmpp::tiled_matmul(vector, matrix); },
                           "tiled_matmul: a must be a matrix, but it has 1 dimension(s) (shape [3])");
  expect_error<c10::Error>([&] { pmpp::tiled_matmul(matrix, cube); },
                           "tiled_matmul: b must be a matrix, but it has 3 dimension(s) (shape [2, 3, 4])");
  expect_error<c10::Error>([&] { pmpp::tiled_matmul(cube, vector); },
                           "tiled_matmul: a must be a matrix, but it has 3 dimension(s) (shape [2, 3, 4])");
  for (const auto& call :
       {std::function<void()>([&] { pmpp::padded_transpose(cube); }), {[&] { pmpp::transpose(cube); }}}) {
    expect_error<c10::Error>(call,
                             "padded_transpose: expected a tensor with at most 2 dimensions, but x has 3 (shape "
                             "[2, 3, 4])");
  }
}

// Shape comes before dtype, and before the algorithm.
TEST_P(Ops, ErrorShape) {
  expect_error<c10::Error>(
      [&] {
        pmpp::tiled_matmul(random({2, 3}, at::kFloat), random({4, 5}, at::kDouble), "fast");
      },
      "tiled_matmul: a and b shapes cannot be multiplied (2x3 and 4x5)");
}

TEST_P(Ops, ErrorDevice) {
  const Tensor here = random({2, 2}, at::kFloat);
  const auto elsewhere = at::TensorOptions(on_cuda() ? at::kCPU : at::kMeta).dtype(at::kFloat);
  const Tensor there = at::empty({2, 2}, elsewhere);
  const std::string first = on_cuda() ? "cuda:0" : "cpu";
  const std::string second = on_cuda() ? "cpu" : "meta";
  const std::string start = "expected all tensors to be on the same device, but ";
  expect_error<c10::Error>([&] { pmpp::tiled_matmul(here, there); },
                           "tiled_matmul: " + start + "a is on " + first + " and b is on " + second);
  expect_error<c10::Error>([&] { pmpp::tiled_matmul(there, here); },
                           "tiled_matmul: " + start + "a is on " + second + " and b is on " + first);
  expect_error<c10::Error>(
      [&] {
        Tensor out = at::empty({2, 2}, elsewhere);
        pmpp::tiled_matmul_out(out, here, here);
      },
      "tiled_matmul: " + start + "a is on " + first + " and out is on " + second);
  expect_error<c10::Error>(
      [&] {
        Tensor out = at::empty({2, 2}, elsewhere);
        pmpp::padded_transpose_out(out, here);
      },
      "padded_transpose: " + start + "x is on " + first + " and out is on " + second);
}

TEST_P(Ops, ErrorDtype) {
  expect_error<c10::Error>(
      [&] {
        pmpp::tiled_matmul(random({2, 2}, at::kFloat), random({2, 2}, at::kDouble));
      },
      "tiled_matmul: expected a and b to have the same dtype, but got a Float and b Double");
  const Tensor flags = at::ones({2, 2}, options(at::kBool));
  expect_error<c10::NotImplementedError>([&] { pmpp::tiled_matmul(flags, flags); },
                                         "\"tiled_matmul\" not implemented for 'Bool'");
}

TEST_P(Ops, ErrorAlgorithm) {
  const Tensor x = random({2, 2}, at::kFloat);
  expect_error<c10::ValueError>([&] { pmpp::tiled_matmul(x, x, "fast"); },
                                "tiled_matmul: unknown algorithm 'fast'; expected one of auto, naive, tiled, "
                                "tiled_dynamic, simt, mma, wgmma, emulated, blocked");
  expect_error<c10::ValueError>([&] { pmpp::padded_transpose(x, "fast"); },
                                "padded_transpose: unknown algorithm 'fast'; expected one of auto, naive, shared, "
                                "padded, padded16, vectorized, blocked");
  if (on_cuda()) {
    // Which there are depends on the GPU; that they are listed right is tested beside the selection.
    const auto algorithms = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("pmpp::_algorithms", "")
                                .typed<std::vector<std::string>(c10::string_view, c10::Device, at::ScalarType)>();
    std::string available = "auto";
    for (const std::string& name : algorithms.call("tiled_matmul", x.device(), at::kFloat)) available += ", " + name;
    EXPECT_EQ(available.rfind("auto, naive, tiled, tiled_dynamic, simt", 0), 0u) << available;
    expect_error<c10::NotImplementedError>([&] { pmpp::tiled_matmul(x, x, "blocked"); },
                                           "tiled_matmul: algorithm 'blocked' is not available for Float on cuda:0; "
                                           "available: " +
                                               available);
    expect_error<c10::NotImplementedError>([&] { pmpp::padded_transpose(x, "blocked"); },
                                           "padded_transpose: algorithm 'blocked' is not available for Float on "
                                           "cuda:0; available: auto, naive, shared, padded, padded16, "
                                           "vectorized");
  } else {
    expect_error<c10::NotImplementedError>([&] { pmpp::tiled_matmul(x, x, "tiled"); },
                                           "tiled_matmul: algorithm 'tiled' is not available for Float on cpu; "
                                           "available: auto, naive, blocked");
    expect_error<c10::NotImplementedError>([&] { pmpp::padded_transpose(x, "padded"); },
                                           "padded_transpose: algorithm 'padded' is not available for Float on cpu; "
                                           "available: auto, naive, blocked");
  }
}

TEST_P(Ops, ErrorOutDtype) {
  const Tensor x = random({2, 2}, at::kFloat);
  Tensor out = at::full({2, 2}, 7, options(at::kDouble));
  expect_error<c10::Error>([&] { pmpp::tiled_matmul_out(out, x, x); },
                           "tiled_matmul: expected out to have dtype Float, but got Double");
  expect_error<c10::Error>([&] { pmpp::padded_transpose_out(out, x); },
                           "padded_transpose: expected out to have dtype Float, but got Double");
  EXPECT_TRUE(at::equal(out, at::full_like(out, 7))) << "a refused out was written to";
  // Also where there is nothing to compute.
  const Tensor none = at::empty({2, 0}, options(at::kFloat));
  expect_error<c10::Error>([&] { pmpp::tiled_matmul_out(out, none, none.t()); },
                           "tiled_matmul: expected out to have dtype Float, but got Double");
}

TEST_P(Ops, ErrorOutOverlap) {
  Tensor x = random({2, 2}, at::kFloat);
  const Tensor y = random({2, 2}, at::kFloat);
  const Tensor before = x.clone();
  const std::string advice = " in memory; give it storage of its own (out: shape [2, 2], strides [2, 1]; ";
  expect_error<c10::Error>([&] { pmpp::tiled_matmul_out(x, x, y); },
                           "tiled_matmul: out overlaps a" + advice + "a: shape [2, 2], strides [2, 1])");
  expect_error<c10::Error>([&] { pmpp::tiled_matmul_out(x, y, x.t()); },
                           "tiled_matmul: out overlaps b" + advice + "b: shape [2, 2], strides [1, 2])");
  expect_error<c10::Error>([&] { pmpp::padded_transpose_out(x, x); },
                           "padded_transpose: out overlaps x" + advice + "x: shape [2, 2], strides [2, 1])");
  Tensor repeated = x.slice(0, 0, 1).expand({2, 2});
  expect_error<c10::Error>([&] { pmpp::tiled_matmul_out(repeated, y, y); },
                           "tiled_matmul: out overlaps itself in memory: several of its elements share one address "
                           "(shape [2, 2], strides [0, 1])");
  EXPECT_TRUE(at::equal(x, before)) << "a refused out was written to";
}

TEST_P(Ops, ErrorOutOverlapThroughConjugate) {
  Tensor x = random({2, 2}, at::kComplexFloat);
  const Tensor y = random({2, 2}, at::kComplexFloat);
  const Tensor before = x.clone();
  const std::string advice = " in memory; give it storage of its own (out: shape [2, 2], strides [2, 1]; ";
  expect_error<c10::Error>([&] { pmpp::tiled_matmul_out(x, x.conj(), y); },
                           "tiled_matmul: out overlaps a" + advice + "a: shape [2, 2], strides [2, 1])");
  expect_error<c10::Error>([&] { pmpp::padded_transpose_out(x, x.conj()); },
                           "padded_transpose: out overlaps x" + advice + "x: shape [2, 2], strides [2, 1])");
  EXPECT_TRUE(at::equal(x, before)) << "a refused out was written to";
  Tensor out = at::empty({2, 2}, x.options());
  pmpp::padded_transpose_out(out, x.conj());
  EXPECT_TRUE(at::equal(out, at::conj_physical(x).t()));
}

TEST_P(Ops, ErrorOutRequiresGrad) {
  const Tensor x = random({2, 2}, at::kFloat);
  const Tensor leaf = x.clone().requires_grad_();
  Tensor plain = at::empty({2, 2}, options(at::kFloat));
  Tensor graded = at::empty({2, 2}, options(at::kFloat)).requires_grad_();
  const std::string text =
      "(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires "
      "grad.";
  expect_error<c10::Error>([&] { pmpp::tiled_matmul_out(graded, x, x); }, "tiled_matmul" + text);
  expect_error<c10::Error>([&] { pmpp::tiled_matmul_out(plain, leaf, x); }, "tiled_matmul" + text);
  expect_error<c10::Error>([&] { pmpp::tiled_matmul_out(plain, x, leaf); }, "tiled_matmul" + text);
  expect_error<c10::Error>([&] { pmpp::padded_transpose_out(graded, x); }, "padded_transpose" + text);
  expect_error<c10::Error>([&] { pmpp::padded_transpose_out(plain, leaf); }, "padded_transpose" + text);
  const c10::NoGradGuard guard;
  EXPECT_TRUE(at::allclose(pmpp::tiled_matmul_out(plain, leaf, x), at::mm(x, x)));
}

// Layouts that are not registered end in the dispatcher's own error.
TEST_P(Ops, ErrorSparse) {
  const Tensor sparse = at::eye(2, options(at::kFloat)).to_sparse();
  EXPECT_THROW(pmpp::tiled_matmul(sparse, sparse), c10::NotImplementedError);
  EXPECT_THROW(pmpp::padded_transpose(sparse), c10::NotImplementedError);
}

}  // namespace
}  // namespace pmpp::test
