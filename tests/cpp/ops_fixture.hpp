// What the tests of the operators share: a fixture for each device, and the check of an exception.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "ops/pmpp.h"

namespace pmpp::test {

using at::Tensor;

inline constexpr at::ScalarType kMatmulTypes[] = {at::kHalf,         at::kBFloat16,      at::kFloat, at::kDouble,
                                                  at::kComplexFloat, at::kComplexDouble, at::kByte,  at::kChar,
                                                  at::kShort,        at::kInt,           at::kLong};

class Ops : public ::testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    if (!on_cuda()) {
      return;
    }
#ifndef PMPP_WITH_CUDA
    GTEST_SKIP() << "built without CUDA";
#else
    if (!at::hasCUDA()) {
      GTEST_SKIP() << "no CUDA device";
    }
#endif
  }

  bool on_cuda() const { return GetParam() == at::kCUDA; }
  at::Device device() const { return on_cuda() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU); }
  at::TensorOptions options(at::ScalarType dtype) const { return at::TensorOptions(device()).dtype(dtype); }
  Tensor random(at::IntArrayRef shape, at::ScalarType dtype) const { return at::randn(shape, options(dtype)); }
  // Small whole numbers, the same on every device.
  Tensor whole(at::IntArrayRef shape) const { return at::randint(-4, 5, shape, at::kLong); }
  std::vector<const char*> matmul_algorithms() const {
    return on_cuda() ? std::vector<const char*>{"auto", "naive", "tiled", "tiled_dynamic", "simt"}
                     : std::vector<const char*>{"auto", "naive", "blocked"};
  }
  std::vector<const char*> transpose_algorithms() const {
    return on_cuda() ? std::vector<const char*>{"auto", "naive", "shared", "padded", "padded16", "vectorized"}
                     : std::vector<const char*>{"auto", "naive", "blocked"};
  }

  // The call throws exactly this exception with exactly this text, and the next call works.
  template <class Exception>
  void expect_error(const std::function<void()>& call, const std::string& text) const {
    try {
      call();
      ADD_FAILURE() << "no exception; expected: " << text;
    } catch (const c10::Error& error) {
      EXPECT_EQ(typeid(error), typeid(Exception)) << error.what_without_backtrace();
      EXPECT_EQ(std::string(error.what_without_backtrace()), text);
    }
    const Tensor two = at::full({2, 2}, 2, options(at::kFloat));
    EXPECT_TRUE(at::equal(pmpp::tiled_matmul(two, two), at::full_like(two, 8)));
    EXPECT_TRUE(at::equal(pmpp::padded_transpose(two), two));
  }
};

inline std::string device_name(const ::testing::TestParamInfo<at::DeviceType>& info) {
  return info.param == at::kCUDA ? "cuda" : "cpu";
}

struct CountWarnings : c10::WarningHandler {
  int count = 0;
  std::string last;
  void process(const c10::Warning& warning) override {
    ++count;
    last = warning.msg();
  }
};

}  // namespace pmpp::test
