// The tests that every kernel with a table of tiles has to pass, whatever `auto` would choose: those of simt, of mma
// and of mma in float64 and complex128.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "csrc/tiled_matmul/launch.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "tests/cpp/cuda_plans.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/matmul_cases.hpp"

namespace pmpp::test {

// Tests of this fixture are skipped on devices without mma, too.
template <class Base>
class NeedsMma : public NeedsCuda<Base> {
 protected:
  void SetUp() override {
    NeedsCuda<Base>::SetUp();
    if (!::testing::Test::IsSkipped() && current_device_facts().compute_capability < 80) {
      GTEST_SKIP() << "mma needs compute capability 8.0";
    }
  }
};

// A row of a kernel's table, and a dtype that it multiplies.
struct TestedTile {
  matmul::Algorithm algorithm;
  int config;
  DType dtype;
  int m, n, k, stages;

  std::vector<matmul::Plan> plans(const DeviceCase& on_device) const {
    std::vector<matmul::Plan> plans = on_device.plans(algorithm);
    std::erase_if(plans, [&](const matmul::Plan& plan) { return plan.config != config; });
    return plans;
  }

  // Runs a case with every plan of the tile; returns how many there are.
  int check(MatmulData& data) const {
    const DeviceCase on_device(data);
    const std::vector<matmul::Plan> all = plans(on_device);
    check_plans(data, on_device, all);
    return static_cast<int>(all.size());
  }
  int check(const MatmulCase& spec) const {
    MatmulData data(spec);
    return check(data);
  }
};

// Calls check(spec) with the operands in all four orders.
template <class Check>
void check_each_order(MatmulCase spec, const Check& check) {
  for (const Layout a : {Layout::kRowMajor, Layout::kColumnMajor}) {
    for (const Layout b : {Layout::kRowMajor, Layout::kColumnMajor}) {
      spec.a = a, spec.b = b;
      check(spec);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Calls check(spec) for problems of these sizes, m, n and k.
template <class Check>
void check_each_size(DType dtype, const std::vector<std::array<std::int64_t, 3>>& sizes, const Check& check) {
  int count = 0;
  for (const auto& [m, n, k] : sizes) {
    MatmulCase spec{dtype, m, n, k};
    spec.guard = count++ % 2 * 3;
    check(spec);
    if (::testing::Test::HasFailure()) return;
  }
}

// In all four orders of a and b, on multiples of 16 bytes and off them.
inline void check_sizes_around(const TestedTile& tile) {
  const int m = tile.m, n = tile.n, k = tile.k, stages = tile.stages;
  check_each_size(tile.dtype,
                  {{1, 1, 1},
                   {m, n, k},
                   {m - 1, n + 1, k - 1},
                   {m + 1, n - 1, k + 1},
                   {1, n, 3 * k + 1},
                   {m, 1, stages * k},
                   {m + 3, n + 5, (stages + 2) * k + 5}},
                  [&](const MatmulCase& sized) {
                    check_each_order(sized, [&](MatmulCase spec) {
                      align_lines(spec);
                      EXPECT_GT(tile.check(spec), 0);
                      spec.a_pad += 1, spec.b_pad += 3, spec.a_offset = 1, spec.b_offset = 2;
                      EXPECT_GT(tile.check(spec), 0);
                    });
                  });
}

inline void check_results_of_every_alignment(const TestedTile& tile) {
  for (int residue = 0; residue < 8; ++residue) {
    for (const Layout d : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kReversed}) {
      MatmulCase spec{tile.dtype, 40, 71 + residue % 2, 33};
      spec.d = d, spec.d_pad = residue % 4 * 2 + residue % 2, spec.guard = residue;
      EXPECT_GT(tile.check(spec), 0);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// With k whole and in up to `pieces` pieces.
inline void check_epilogue_and_batches(const TestedTile& tile, int pieces) {
  int count = 0;
  for (const Layout c : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSameRow, Layout::kSameElement}) {
    MatmulCase spec{tile.dtype, 37, count % 2 == 0 ? 44 : 41, 12 * tile.k - 3, 3};
    spec.c = c, spec.alpha = matmul::scalar(count % 2 == 0 ? 1 : 2), spec.beta = matmul::scalar(count + 1);
    spec.d = count % 2 == 0 ? Layout::kRowMajor : Layout::kColumnMajor;
    spec.a_batch = count == 1 ? BatchLayout::kShared : BatchLayout::kPacked;
    spec.b_batch = count == 2 ? BatchLayout::kReversed : BatchLayout::kPacked;
    spec.guard = count++ % 3 * 4;
    EXPECT_EQ(tile.check(spec), pieces) << "whole and in every number of pieces";
    if (::testing::Test::HasFailure()) return;
  }
}

inline void check_same_bits_twice(const TestedTile& tile, const DeviceCase& on_device) {
  for (const matmul::Plan& plan : tile.plans(on_device)) {
    std::vector<std::byte> once, again;
    on_device.run(plan, once);
    on_device.run(plan, again);
    EXPECT_EQ(once, again) << to_string(plan);
  }
}

// Real values in more than one tile.
inline MatmulCase real_case(DType dtype) {
  MatmulCase spec{dtype, 136, 264, 328};
  spec.fill = Fill::kReal;
  return spec;
}

// A plan with a single block must still do everything.
inline void check_one_block(const TestedTile& tile, const MatmulCase& spec) {
  MatmulData data(spec);
  const DeviceCase on_device(data);
  std::vector<matmul::Plan> plans = tile.plans(on_device);
  for (matmul::Plan& plan : plans) plan.grid[0] = 1;
  check_plans(data, on_device, plans);
}

// All strides, sizes of 0 and 1, NaN and infinities: what every algorithm must do.
inline void check_against_the_oracle(const TestedTile& tile) {
  for (std::size_t index = 0; index < 2; ++index) {
    const Execute any_plan = [&](MatmulData& data) {
      const DeviceCase on_device(data);
      const std::vector<matmul::Plan> plans = tile.plans(on_device);
      ASSERT_FALSE(plans.empty());
      on_device.run(plans[index % plans.size()], data.d.storage);
    };
    check_everything(any_plan, tile.dtype, {tile.k});
  }
}

// NaN in an operand's neighbours, and in what lies past the end of k, must not reach the result; infinities must.
inline void check_specials(const TestedTile& tile) {
  for (const long double special :
       {std::numeric_limits<long double>::quiet_NaN(), std::numeric_limits<long double>::infinity()}) {
    MatmulCase spec{tile.dtype, 24, 40, 72};
    spec.fill = Fill::kPositiveIntegers;
    MatmulData data(spec);
    store(tile.dtype, data.a.address(0, 23, 71), {special, 0, 0});
    store(tile.dtype, data.b.address(0, 0, 3), {special, 0, 0});
    EXPECT_GT(tile.check(data), 0);
  }
}

// Shapes, orders, pitches, offsets, epilogues and batches at random; the operands of `aligned` ones are single matrices
// with lines on multiples of 16 bytes.
inline void check_random_problems(const TestedTile& tile, std::uint64_t seed, int cases, int longest_k,
                                  bool aligned = false) {
  constexpr Layout kOperands[] = {Layout::kRowMajor,    Layout::kColumnMajor, Layout::kRowMajor,
                                  Layout::kColumnMajor, Layout::kSliced,      Layout::kReversed};
  constexpr Layout kResults[] = {Layout::kRowMajor, Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced};
  std::mt19937_64 random(seed);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<std::uint64_t>(limit)); };
  for (int count = 0; count < cases && !::testing::Test::HasFailure(); ++count) {
    MatmulCase spec{tile.dtype, 1 + below(150), 1 + below(270), 1 + below(longest_k), 1 + below(2)};
    spec.a = kOperands[below(aligned ? 4 : 6)], spec.b = kOperands[below(aligned ? 4 : 6)];
    spec.d = kResults[below(4)];
    if (aligned) {
      spec.batch = 1;
      align_lines(spec);
    } else {
      spec.a_pad = below(9), spec.b_pad = below(9), spec.a_offset = below(9), spec.b_offset = below(9);
    }
    spec.d_pad = below(9), spec.guard = below(9);
    if (below(2) == 0) spec.c = kResults[below(4)];
    spec.beta = matmul::scalar(below(3)), spec.alpha = matmul::scalar(1 + below(2));
    EXPECT_GT(tile.check(spec), 0) << "case " << count;
  }
}

// Also the two launches of a split product can be captured, run nothing while they are, and give the result later.
inline void check_capture(const TestedTile& tile) {
  const MatmulCase spec{tile.dtype, 40, 48, 512};
  MatmulData first(spec);
  for (const matmul::Plan& plan : tile.plans(DeviceCase(first))) {
    MatmulData data(spec);
    check_captured(data, DeviceCase(data), plan, plan.splits > 1 ? 2 : 1);
  }
}

struct FarOrder {
  bool a_along_k, b_along_k, d_down_columns;
};

// The lines of a, b and d lie 2^32 + 8 elements apart: an offset kept in 32 bits meets the wrong ones.
inline void check_far_lines(const TestedTile& tile, const std::vector<FarOrder>& orders) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 32) + 8;
  const int size = element_size(tile.dtype);
  const std::size_t bytes = static_cast<std::size_t>(size) * (static_cast<std::size_t>(kFar) + 64);
  std::size_t free = 0, total = 0;
  PMPP_ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  const DeviceMemory memory(free > bytes + (std::size_t{1} << 30) ? bytes : 0);
  if (memory.at(0) == nullptr) GTEST_SKIP() << "needs " << bytes << " bytes of device memory, " << free << " are free";
  const auto put = [&](std::int64_t element, int value) {
    std::byte bits[16];
    store(tile.dtype, bits, {static_cast<long double>(value), 0, value});
    EXPECT_EQ(cudaSuccess, cudaMemcpy(memory.at(size * element), bits, size, cudaMemcpyHostToDevice));
  };
  const auto get = [&](std::int64_t element) {
    std::byte bits[16];
    EXPECT_EQ(cudaSuccess, cudaMemcpy(bits, memory.at(size * element), size, cudaMemcpyDeviceToHost));
    const Value value = load(tile.dtype, bits);
    return is_integer(tile.dtype) ? static_cast<double>(value.integer) : static_cast<double>(value.re);
  };
  const int a[2][2] = {{2, 3}, {-5, 7}}, b[2][2] = {{4, 13}, {-1, 6}};
  for (const auto& [a_along_k, b_along_k, d_down_columns] : orders) {
    matmul::Problem p{};
    p.dtype = tile.dtype;
    p.m = p.n = p.k = 2;
    p.a = {memory.at(0), a_along_k ? kFar : 1, a_along_k ? 1 : kFar, 0};
    p.b = {memory.at(size * 16), b_along_k ? 1 : kFar, b_along_k ? kFar : 1, 0};
    p.d = {memory.at(size * 32), d_down_columns ? 1 : kFar, d_down_columns ? kFar : 1, 0};
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        put(i * p.a.row_stride + j * p.a.col_stride, a[i][j]);
        put(16 + i * p.b.row_stride + j * p.b.col_stride, b[i][j]);
      }
    }
    int run = 0;
    for (const matmul::Plan& plan : matmul::plans(p, current_device_facts(), tile.algorithm)) {
      if (plan.config != tile.config) continue;
      ++run;
      PMPP_ASSERT_CUDA(matmul::launch(plan, p, current_device_facts(), nullptr, nullptr));
      PMPP_ASSERT_CUDA(cudaDeviceSynchronize());
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          EXPECT_EQ(get(32 + i * p.d.row_stride + j * p.d.col_stride), a[i][0] * b[0][j] + a[i][1] * b[1][j])
              << to_string(p);
        }
      }
    }
    EXPECT_EQ(run, 1);
  }
}

}  // namespace pmpp::test
