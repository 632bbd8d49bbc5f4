// Every plan of the float32 kernels of sm_90a against the oracle: emulated, which multiplies complex64 too, and wgmma
// where tf32 is allowed. Small whole numbers, which tf32 keeps, come out exactly.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/emulated.hpp"
#include "csrc/tiled_matmul/launch.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/select_emulated.hpp"
#include "csrc/tiled_matmul/select_wgmma.hpp"
#include "tests/cpp/cuda_plans.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {
namespace {

using matmul::Algorithm;
using matmul::Float32Precision;
using matmul::Plan;
using matmul::Problem;

constexpr Layout kOrders[] = {Layout::kRowMajor, Layout::kColumnMajor};

struct Kernel {
  Algorithm algorithm;
  DType dtype;
};

class CudaFloat32 : public NeedsCuda<::testing::TestWithParam<Kernel>> {
 protected:
  static Algorithm algorithm() { return GetParam().algorithm; }
  static DType dtype() { return GetParam().dtype; }

  void SetUp() override {
    NeedsCuda::SetUp();
    if (!IsSkipped() && !matmul::emulated_available(DType::kFloat32, current_device_facts())) {
      GTEST_SKIP() << "needs compute capability 9.0";
    }
  }

  static MatmulCase case_of(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
    MatmulCase spec{dtype(), m, n, k, batch};
    if (algorithm() == Algorithm::kWgmma) spec.precision = Float32Precision::kTf32;
    return spec;
  }

  static void check_all(MatmulData& data) {
    const DeviceCase on_device(data);
    const std::vector<Plan> plans = on_device.plans(algorithm());
    ASSERT_FALSE(plans.empty());
    check_plans(data, on_device, plans);
  }
  static void check_all(const MatmulCase& spec) {
    MatmulData data(spec);
    check_all(data);
  }

  // The case in all four orders of a and b, with lines as they come and with lines on 16-byte boundaries.
  void check_orders(MatmulCase spec) {
    for (const Layout a : kOrders) {
      for (const Layout b : kOrders) {
        spec.a = a, spec.b = b;
        spec.a_pad = spec.b_pad = 0;
        check_all(spec);
        align_lines(spec);
        check_all(spec);
        if (HasFailure()) return;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, CudaFloat32,
                         ::testing::Values(Kernel{Algorithm::kEmulated, DType::kFloat32},
                                           Kernel{Algorithm::kEmulated, DType::kComplex64},
                                           Kernel{Algorithm::kWgmma, DType::kFloat32}),
                         [](const auto& info) {
                           return std::string(matmul::algorithm_name(info.param.algorithm)) + "_" +
                                  dtype_name(info.param.dtype);
                         });

TEST_P(CudaFloat32, SizesAroundEveryTile) {
  constexpr std::int64_t kM[] = {1, 63, 64, 65, 127, 128, 129, 257},
                         kN[] = {1, 2, 63, 65, 127, 128, 129, 193, 256, 257},
                         kK[] = {1, 31, 32, 33, 63, 64, 65, 127, 129, 200};
  std::size_t count = 0;
  for (const std::int64_t n : kN) {
    for (int i = 0; i < 2; ++i, ++count) {
      MatmulCase spec = case_of(kM[count * 3 % std::size(kM)], n, kK[count * 7 % std::size(kK)]);
      spec.guard = count % 2 * 3;
      check_orders(spec);
      if (HasFailure()) return;
    }
  }
}

// More steps than slots and stages, and more tiles than blocks.
TEST_P(CudaFloat32, ManyTilesAndSteps) {
  check_orders(case_of(40, 24, 1500));
  MatmulCase spec = case_of(264, 261, 328, 2);
  MatmulData data(spec);
  const DeviceCase on_device(data);
  std::vector<Plan> plans = on_device.plans(algorithm());
  std::erase_if(plans, [](const Plan& plan) {  // the blocks of a cluster over k do one tile
    return plan.algorithm == Algorithm::kWgmma && matmul::splits_in_cluster(matmul::kWgmmaTiles[plan.config]);
  });
  ASSERT_FALSE(plans.empty());
  for (Plan& plan : plans) plan.grid[0] = plan.cluster;  // one cluster strides over everything
  check_plans(data, on_device, plans);
}

TEST_P(CudaFloat32, EveryResidueOfTheOperandsAndTheResult) {
  for (int residue = 0; residue < 4; ++residue) {
    for (const int pad : {0, 1, 2, 3}) {
      for (const Layout a : kOrders) {
        for (const Layout b : kOrders) {
          MatmulCase spec = case_of(67, 72, 77);
          spec.a = a, spec.b = b;
          align_lines(spec);
          spec.a_offset = residue, spec.b_offset = (residue + pad) % 4, spec.a_pad += pad, spec.b_pad += 3 * pad;
          spec.d_pad = pad, spec.guard = residue;
          check_all(spec);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(CudaFloat32, OperandsAndResultsOfAnyStrides) {
  check_every_layout(case_of(40, 56, 72), [](const MatmulCase& spec, int) { check_all(spec); });
}

TEST_P(CudaFloat32, Epilogue) {
  struct Scalars {
    std::optional<Layout> c;
    matmul::Scalar alpha, beta;
  };
  std::vector<Scalars> cases = {{std::nullopt, matmul::scalar(-3), matmul::scalar(0)},
                                {Layout::kRowMajor, matmul::scalar(1), matmul::scalar(1)},
                                {Layout::kColumnMajor, matmul::scalar(2), matmul::scalar(-1)},
                                {Layout::kSameRow, matmul::scalar(1), matmul::scalar(3)},  // a bias row
                                {Layout::kSliced, matmul::scalar(0), matmul::scalar(1)}};
  if (is_complex(dtype())) {
    cases.insert(cases.end(), {{std::nullopt, {2, -1, 0}, matmul::scalar(0)},
                               {Layout::kRowMajor, {0, 1, 0}, {0, 2, 0}},
                               {Layout::kColumnMajor, {2, -1, 0}, {-1, 3, 0}},
                               {Layout::kSameColumn, matmul::scalar(1), {1, 1, 0}},
                               {Layout::kSameRow, {-1, 1, 0}, matmul::scalar(3)}});
  }
  for (const auto& epilogue : cases) {
    for (const Layout d : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced}) {
      MatmulCase spec = case_of(35, 72, 505);
      spec.c = epilogue.c, spec.alpha = epilogue.alpha, spec.beta = epilogue.beta, spec.d = d;
      check_all(spec);
      if (HasFailure()) return;
    }
  }
}

TEST_P(CudaFloat32, Batches) {
  constexpr BatchLayout kAll[] = {BatchLayout::kPacked, BatchLayout::kApart, BatchLayout::kReversed,
                                  BatchLayout::kShared};
  for (int i = 0; i < 16; ++i) {
    MatmulCase spec = case_of(71, 40, 136, 3);
    spec.a_batch = kAll[i % 4], spec.b_batch = kAll[i / 4], spec.c_batch = kAll[(i + 2) % 4];
    spec.d_batch = kAll[i % 3];  // the matrices of a result never share memory
    spec.a = kOrders[i % 2], spec.b = kOrders[i / 2 % 2], spec.d = kOrders[i / 4 % 2];
    if (i % 3 == 0) spec.c = Layout::kRowMajor, spec.beta = matmul::scalar(1);
    check_all(spec);
    if (HasFailure()) return;
  }
}

TEST_P(CudaFloat32, RandomProblems) {
  constexpr Layout kOperands[] = {Layout::kRowMajor,    Layout::kColumnMajor, Layout::kRowMajor,
                                  Layout::kColumnMajor, Layout::kSliced,      Layout::kReversed};
  constexpr Layout kResults[] = {Layout::kRowMajor, Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced};
  std::mt19937_64 random(3);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<std::uint64_t>(limit)); };
  for (int count = 0; count < 60 && !HasFailure(); ++count) {
    MatmulCase spec = case_of(1 + below(150), 1 + below(270), 1 + below(300), 1 + below(2));
    spec.a = kOperands[below(6)], spec.b = kOperands[below(6)], spec.d = kResults[below(4)];
    spec.a_pad = below(9), spec.b_pad = below(9), spec.a_offset = below(9), spec.b_offset = below(9);
    spec.d_pad = below(9), spec.guard = below(9);
    if (below(2) == 0) spec.c = kResults[below(4)];
    spec.beta = matmul::scalar(below(3)), spec.alpha = matmul::scalar(1 + below(2));
    check_all(spec);
  }
}

// NaN and infinities, one at a time: they reach the outputs that IEEE arithmetic sends them to and no other. Of a
// complex number either part, or one beside a finite other.
TEST_P(CudaFloat32, SpecialsReachTheirRowOrColumnOnly) {
  constexpr std::int64_t kM = 65, kN = 67, kK = 131;
  const long double nan = std::numeric_limits<double>::quiet_NaN();
  const long double infinity = std::numeric_limits<double>::infinity();
  int count = 0;
  for (const auto& [i, j, l] : {std::array<std::int64_t, 3>{0, 0, 0}, {63, 64, 63}, {kM - 1, kN - 1, kK - 1}}) {
    std::vector<Value> specials = {{nan, 0, 0}, {infinity, 0, 0}, {-infinity, 0, 0}};
    if (is_complex(dtype())) specials.insert(specials.end(), {{0, nan, 0}, {0, -infinity, 0}, {2, infinity, 0}});
    for (const Value& special : specials) {
      MatmulCase spec = case_of(kM, kN, kK);
      spec.fill = Fill::kPositiveIntegers;
      spec.a = kOrders[count % 2], spec.b = kOrders[count++ / 2 % 2];
      MatmulData in_a(spec), in_b(spec);
      store(dtype(), in_a.a.address(0, i, l), special);
      store(dtype(), in_b.b.address(0, l, j), special);
      check_all(in_a);
      check_all(in_b);
      if (HasFailure()) return;
    }
  }
}

TEST_P(CudaFloat32, TheSameBitsEveryTime) {
  MatmulCase spec = case_of(200, 136, 505);
  spec.fill = Fill::kReal;
  MatmulData data(spec);
  const DeviceCase on_device(data);
  for (const Plan& plan : on_device.plans(algorithm())) {
    std::vector<std::byte> first, again;
    on_device.run(plan, first);
    const DeviceMemory workspace = poisoned_workspace(plan.workspace_bytes);
    for (int repetition = 0; repetition < 50; ++repetition) {
      PMPP_ASSERT_CUDA(on_device.launch(plan, workspace)) << to_string(plan);
      on_device.read(again);
      ASSERT_EQ(first, again) << to_string(plan) << ", repetition " << repetition;
    }
  }
}

TEST_P(CudaFloat32, IsCapturedOnItsStream) {
  for (const int pad : {0, 1}) {
    MatmulCase spec = case_of(40, 48, 512);
    spec.a_pad = spec.b_pad = pad;
    MatmulData first(spec);
    for (const Plan& plan : DeviceCase(first).plans(algorithm())) {
      const bool is_emulated = plan.algorithm == Algorithm::kEmulated;
      const bool has_second_pass =
          plan.splits > 1 && (is_emulated || !matmul::splits_in_cluster(matmul::kWgmmaTiles[plan.config]));
      // The split of both operands; or one copy of those that lie off their alignment.
      const bool has_first_pass = is_emulated || plan.is_a_packed || plan.is_b_packed;
      EXPECT_EQ(has_first_pass, is_emulated || pad != 0) << to_string(plan);
      MatmulData data(spec);
      check_captured(data, DeviceCase(data), plan, 1 + (has_first_pass ? 1 : 0) + (has_second_pass ? 1 : 0));
      if (HasFailure()) return;
    }
  }
}

// ---- emulated alone ------------------------------------------------------------------------------------------------

class CudaEmulated : public NeedsCuda<::testing::TestWithParam<DType>> {
 protected:
  using Number = std::complex<double>;

  void SetUp() override {
    NeedsCuda::SetUp();
    if (!IsSkipped() && !matmul::emulated_available(DType::kFloat32, current_device_facts())) {
      GTEST_SKIP() << "needs compute capability 9.0";
    }
  }

  static MatmulCase case_of(std::int64_t m, std::int64_t n, std::int64_t k) { return {GetParam(), m, n, k}; }
  static Number get(const Buffer& x, std::int64_t row, std::int64_t col) {
    const Value value = load(GetParam(), x.address(0, row, col));
    return {static_cast<double>(value.re), static_cast<double>(value.im)};
  }
  // The imaginary parts are the real ones of the next column.
  template <class F>
  static void fill(Buffer& x, const F& value) {
    x.for_each([&](std::int64_t, std::int64_t row, std::int64_t col) {
      const long double re = value(row, col), im = is_complex(GetParam()) ? value(row, col + 1) : 0;
      store(GetParam(), x.address(0, row, col), {re, im, 0});
    });
  }

  // Of a real or imaginary part: within `units` * 2^-24 * `size` + smallest of `sum`; what is NaN or infinite there,
  // rounded to float32, must be so here.
  static void check_part(double actual, double sum, double size, double units, double smallest,
                         const std::string& what) {
    const auto rounded = static_cast<float>(sum);
    if (!std::isfinite(rounded)) {
      ASSERT_EQ(std::isnan(actual), std::isnan(rounded)) << what;
      if (!std::isnan(rounded)) {
        ASSERT_EQ(actual, rounded) << what;
      }
      return;
    }
    ASSERT_LE(std::fabs(actual - sum), std::ldexp(units * size, -24) + smallest) << what << " of " << size;
  }

  // All plans against sums in double, whose size is |a| @ |b|, taken of the products that make up each part.
  static void check_values(MatmulData& data, double units, double smallest = 0) {
    const MatmulCase& spec = data.spec;
    const DeviceCase on_device(data);
    struct Expected {
      double re, im, re_size, im_size;
    };
    std::vector<Expected> expected;
    for (std::int64_t i = 0; i < spec.m; ++i) {
      for (std::int64_t j = 0; j < spec.n; ++j) {
        Expected e = {};
        for (std::int64_t l = 0; l < spec.k; ++l) {
          const Number x = get(data.a, i, l), y = get(data.b, l, j);
          const auto add = [](double& sum, double& size, double term) { sum += term, size += std::fabs(term); };
          add(e.re, e.re_size, x.real() * y.real());
          if (!is_complex(spec.dtype)) continue;
          add(e.re, e.re_size, -(x.imag() * y.imag()));
          add(e.im, e.im_size, x.real() * y.imag());
          add(e.im, e.im_size, x.imag() * y.real());
        }
        expected.push_back(e);
      }
    }
    for (const Plan& plan : on_device.plans(Algorithm::kEmulated)) {
      on_device.run(plan, data.d.storage);
      for (std::int64_t i = 0; i < spec.m; ++i) {
        for (std::int64_t j = 0; j < spec.n; ++j) {
          const Number actual = get(data.d, i, j);
          const Expected& e = expected[static_cast<std::size_t>(i * spec.n + j)];
          const std::string what = to_string(plan) + ": " + std::to_string(i) + ", " + std::to_string(j);
          check_part(actual.real(), e.re, e.re_size, units, smallest, what + ", real");
          check_part(actual.imag(), e.im, e.im_size, units, smallest, what + ", imaginary");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, CudaEmulated, ::testing::Values(DType::kFloat32, DType::kComplex64),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

// Several in one row or column, zeros and numbers with empty low parts opposite to them, and payloads that the high
// part of a NaN does not hold.
TEST_P(CudaEmulated, MixedSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  MatmulData data(case_of(70, 66, 200));
  const auto put = [&](Buffer& x, std::int64_t row, std::int64_t col, float value) {
    std::memcpy(x.address(0, row, col), &value, sizeof(value));
  };
  put(data.a, 3, 5, infinity), put(data.a, 3, 6, -infinity), put(data.a, 20, 44, 0), put(data.a, 30, 99, infinity);
  put(data.b, 44, 10, infinity), put(data.b, 45, 10, infinity), put(data.b, 99, 3, 0), put(data.b, 99, 4, 1);
  put(data.a, 9, 100, float_from_bits(0x7f800001)), put(data.b, 17, 60, float_from_bits(0xff80ffff));
  if (is_complex(GetParam())) {  // imaginary parts alone, and both of one number
    const auto put_imaginary = [&](Buffer& x, std::int64_t row, std::int64_t col, float value) {
      std::memcpy(x.address(0, row, col) + sizeof(value), &value, sizeof(value));
    };
    put_imaginary(data.a, 40, 7, infinity), put_imaginary(data.a, 50, 8, float_from_bits(0xff800001));
    put(data.a, 60, 9, infinity), put_imaginary(data.a, 60, 9, infinity);
    put_imaginary(data.b, 7, 20, 0), put_imaginary(data.b, 7, 21, infinity);
    put(data.b, 9, 30, infinity), put_imaginary(data.b, 9, 30, -infinity);
    put_imaginary(data.b, 9, 31, 0);
  }
  check_values(data, 0);
}

// Sums that overflow on the way to a finite result, results that overflow, and operands among the largest.
TEST_P(CudaEmulated, NearTheLargest) {
  MatmulData data(case_of(70, 66, 300));
  fill(data.a, [](std::int64_t row, std::int64_t) { return row % 2 == 0 ? 3.4e38f : float_from_bits(0x7f7fffff); });
  fill(data.b, [](std::int64_t row, std::int64_t col) {
    switch (col % 5) {
      case 0:
        return 1e-3f;
      case 1:
        return row < 2 ? 1.0f : 0.0f;  // overflows
      case 2:
        return row == 0 ? 1.0f : 0.0f;
      case 3:
        return row < 4 ? (row < 2 ? 1.0f : -1.0f) : (row == 150 ? 0.5f : 0.0f);  // 2 * 3.4e38 on the way
      default:
        return row % 2 == 0 ? 0.75f : -0.75f;
    }
  });
  check_values(data, 8);
}

TEST_P(CudaEmulated, SubnormalAndTiny) {
  std::mt19937_64 random(5);
  const auto real = [&] { return std::ldexp(static_cast<float>(random() >> 40), -23) - 1.0f; };
  const struct {
    int a, b;  // exponents
  } sizes[] = {{-130, 0}, {-149, 100}, {-140, 60}, {-126, 20}, {-115, 60}, {0, -130}, {90, -135}, {-130, -130}};
  for (const auto& size : sizes) {
    MatmulData data(case_of(40, 72, 200));
    fill(data.a, [&](std::int64_t, std::int64_t) { return std::ldexp(real(), size.a); });
    fill(data.b, [&](std::int64_t, std::int64_t) { return std::ldexp(real(), size.b); });
    check_values(data, 8, std::ldexp(400.0, -149));
    if (HasFailure()) return;
  }
}

// The error does not grow with k: each is below what 64 of k cost.
TEST_P(CudaEmulated, LongSumsOfOneSign) {
  std::mt19937_64 random(6);
  for (const std::int64_t k : {128, 4096, 65536}) {
    MatmulData data(case_of(9, 17, k));
    const auto real = [&](std::int64_t, std::int64_t) { return std::ldexp(static_cast<float>(random() >> 40), -24); };
    fill(data.a, real);
    fill(data.b, real);
    check_values(data, 6);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace pmpp::test
