// What float32 and complex64 products on sm_90 need before a GPU is asked: the split into bfloat16 planes, and the
// plans of emulated and of wgmma in tf32.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/emulated.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/select_emulated.hpp"
#include "csrc/tiled_matmul/select_wgmma.hpp"
#include "csrc/tiled_matmul/split.hpp"
#include "tests/cpp/select_cases.hpp"

namespace pmpp::matmul {
namespace {

using test::device_of;

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1,
                   Float32Precision precision = Float32Precision::kIeee) {
  Problem p = test::contiguous_problem(DType::kFloat32, m, n, k, batch);
  p.precision = precision;
  return p;
}

Problem complex_problem_of(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
  return test::contiguous_problem(DType::kComplex64, m, n, k, batch);
}

// ---- the split -----------------------------------------------------------------------------------------------------

// In double, where the parts of every float32 add up without rounding.
double joined(const SplitFloat& parts) {
  return static_cast<double>(parts.plane[0].to_float()) + static_cast<double>(parts.plane[1].to_float()) / kPlaneStep +
         static_cast<double>(parts.plane[2].to_float()) / (kPlaneStep * kPlaneStep);
}

void expect_exact(float x) {
  const SplitFloat parts = split_float(x);
  ASSERT_EQ(joined(parts), static_cast<double>(x)) << std::hexfloat << x;
  for (const BFloat16 part : parts.plane) ASSERT_TRUE(std::isfinite(part.to_float())) << std::hexfloat << x;
  ASSERT_LE(std::fabs(parts.plane[0].to_float()), std::fabs(x)) << std::hexfloat << x;
}

TEST(SplitFloat, PartsAddUpToEveryFiniteValue) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000000; ++i) {
    const float x = float_from_bits(static_cast<std::uint32_t>(random()));
    if (std::isfinite(x)) expect_exact(x);
    if (HasFatalFailure()) return;
  }
  // All ends of the significand for every exponent, the subnormal ones included.
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (const std::uint32_t low :
         {0x0u, 0x1u, 0x7fu, 0x80u, 0x81u, 0xffu, 0x100u, 0x7fffu, 0x8000u, 0x8080u, 0xff7fu, 0xff80u, 0xff81u, 0xffffu,
          0x7f7fffu, 0x7f8000u >> 1, 0x7fff7fu, 0x7fff80u, 0x7fffffu}) {
      for (const std::uint32_t sign : {0u, 0x80000000u}) expect_exact(float_from_bits(sign | exponent << 23 | low));
      if (HasFatalFailure()) return;
    }
  }
}

// The part that is left out of products, mid * lo, must not have the sign of the value.
TEST(SplitFloat, WhatIsLeftOverHasNoSignOfItsOwn) {
  std::mt19937 random(11);
  double mid = 0, lo = 0, size = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const float x = 1 + std::ldexp(static_cast<float>(random() >> 9), -23);
    const SplitFloat parts = split_float(x);
    mid += parts.plane[1].to_float();
    lo += parts.plane[2].to_float();
    size += std::fabs(parts.plane[2].to_float());
  }
  EXPECT_GT(mid / kCount, 0.5);  // hi is cut off
  EXPECT_LT(std::fabs(lo), 0.02 * size);
}

TEST(SplitFloat, InfinitiesAndNaNAreAllInTheFirstPart) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {infinity, -infinity}) EXPECT_EQ(split_float(x).plane[0].to_float(), x);
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xff80ffffu, 0xffc00001u, 0x7fffffffu}) {
    EXPECT_TRUE(std::isnan(split_float(float_from_bits(bits)).plane[0].to_float())) << std::hex << bits;
  }
  for (const std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u}) {
    const SplitFloat parts = split_float(float_from_bits(bits));
    EXPECT_EQ(parts.plane[1].bits, 0) << std::hex << bits;
    EXPECT_EQ(parts.plane[2].bits, 0) << std::hex << bits;
  }
}

TEST(SplitFloat, KnowsSubnormalElements) {
  for (const std::uint32_t bits : {0x1u, 0x7fffffu, 0x80000001u, 0x807fffffu}) {
    EXPECT_TRUE(is_subnormal(float_from_bits(bits))) << std::hex << bits;
  }
  for (const std::uint32_t bits :
       {0x0u, 0x80000000u, 0x00800000u, 0x3f800000u, 0x7f800000u, 0x7f800001u, 0xffc00000u}) {
    EXPECT_FALSE(is_subnormal(float_from_bits(bits))) << std::hex << bits;
  }
}

// ---- the planes of complex numbers ---------------------------------------------------------------------------------

// The kernel that splits, thread by thread: its index arithmetic is that of the host, its reads and writes are done
// over again here. Returns one plane after another; what is not written stays `unwritten`.
constexpr std::uint16_t kUnwritten = 0x7fff;  // a NaN

std::vector<std::uint16_t> split_on_host(const Operand& operand, const PlaneLayout& layout) {
  std::vector<std::uint16_t> planes(static_cast<std::size_t>(layout.plane_stride * kPlanes), kUnwritten);
  const SplitOperand s = split_operand(operand, layout, planes.data());
  const auto write = [](std::uint16_t* to, const ComplexWords& words, int count) {
    std::memcpy(to, words.word, static_cast<std::size_t>(count) * sizeof(std::uint32_t));
  };
  for (std::int64_t block = 0; block < s.blocks; ++block) {
    for (int thread = 0; thread < kSplitThreads; ++thread) {
      const SplitPlace place = split_place<kSplitRun / 2>(s, block, thread);
      for (int i = 0; i < kSplitLines; ++i) {
        const std::int64_t line = place.line + i * place.step_lines;
        if (place.first >= s.length || line >= s.lines) continue;
        SplitFloat parts[kSplitRun];
        for (int j = 0; j < kSplitRun; ++j) {
          const bool inside = j / 2 < s.length - place.first;
          const float* const at = s.data + place.batch * s.batch_stride + line * s.line_stride + place.first * s.step;
          parts[j] = split_float(inside ? at[j / 2 * s.step + j % 2] : 0.0f);
        }
        for (int plane = 0; plane < kPlanes; ++plane) {
          const auto pair = [&](int j) {
            return parts[j].plane[plane].bits | static_cast<std::uint32_t>(parts[j + 1].plane[plane].bits) << 16;
          };
          const ComplexWords words = {{pair(0), pair(2)}};
          std::uint16_t* const to = s.planes + plane * s.plane_stride + split_offset(s, place, line);
          const int count = split_width(s.form);
          write(to, first_line(words, s.form), count);
          if (split_lines(s.form) == 2) write(to + s.pitch, second_line(words, s.form), count);
        }
      }
    }
  }
  return planes;
}

// Element (row, col) of the real matrix in the planes, whose lines run along k or along m or n.
double real_at(const std::vector<std::uint16_t>& planes, const PlaneLayout& layout, std::int64_t batch, std::int64_t mn,
               std::int64_t k) {
  const std::int64_t line = layout.is_mn_major ? k : mn, index = layout.is_mn_major ? mn : k;
  const std::int64_t at = (layout.is_batched ? batch : 0) * layout.matrix_stride + line * layout.pitch + index;
  double sum = 0, factor = 1;
  for (int plane = 0; plane < kPlanes; ++plane, factor /= kPlaneStep) {
    sum += BFloat16{planes[static_cast<std::size_t>(plane * layout.plane_stride + at)]}.to_float() * factor;
  }
  return sum;
}

// For all orders of a and b, with padding, steps and negative strides: the product of the planes' real matrices is the
// complex product, its columns the real and the imaginary parts in turn.
TEST(ComplexSplit, TheRealProductIsTheComplexOne) {
  struct Order {
    std::int64_t row, col, offset;  // strides of rows x cols
  };
  const auto orders = [](std::int64_t rows, std::int64_t cols) {
    return std::vector<Order>{{cols, 1, 0},
                              {1, rows, 0},
                              {cols + 3, 1, 1},
                              {2 * cols + 1, 2, 0},
                              {3, 3 * rows + 2, 1},
                              {-cols, -1, rows * cols - 1},
                              {0, 1, 0},
                              {1, 0, 0}};
  };
  std::mt19937 random(17);
  std::vector<std::complex<float>> memory(40000);
  for (std::complex<float>& x : memory) {
    const auto real = [&] { return std::ldexp(static_cast<float>(random() % 65536) - 32768, -8); };  // two planes
    x = {real(), real()};
  }
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {5, 3, 7}, {33, 1, 6}, {1, 34, 9}, {7, 66, 70}, {131, 9, 5}, {4, 4, 1}}) {
    for (const Order& a : orders(m, k)) {
      for (const Order& b : orders(k, n)) {
        Problem p = complex_problem_of(m, n, k, 2);
        p.a = {memory.data() + a.offset, a.row, a.col, 501};
        p.b = {memory.data() + 7 + b.offset, b.row, b.col, b.row == 0 ? 0 : 3};
        const PlaneLayout in_a = planes_of_a(p), in_b = planes_of_b(p);
        ASSERT_EQ(in_a.is_mn_major ? in_a.length : in_a.lines, m);
        ASSERT_EQ(in_a.is_mn_major ? in_a.lines : in_a.length, 2 * k);
        ASSERT_EQ(in_b.is_mn_major ? in_b.length : in_b.lines, 2 * n);
        ASSERT_EQ(in_b.is_mn_major ? in_b.lines : in_b.length, 2 * k);
        const std::vector<std::uint16_t> of_a = split_on_host(p.a, in_a), of_b = split_on_host(p.b, in_b);
        for (std::int64_t batch = 0; batch < 2; ++batch) {
          for (std::int64_t i = 0; i < m; i += 3) {
            for (std::int64_t j = 0; j < n; ++j) {
              std::complex<double> expected = 0;
              for (std::int64_t l = 0; l < k; ++l) {
                const std::complex<double> x = memory[a.offset + batch * 501 + i * a.row + l * a.col];
                const std::complex<double> y = memory[7 + b.offset + batch * p.b.batch_stride + l * b.row + j * b.col];
                expected += x * y;
              }
              double re = 0, im = 0;
              for (std::int64_t l = 0; l < 2 * k; ++l) {
                re += real_at(of_a, in_a, batch, i, l) * real_at(of_b, in_b, batch, 2 * j, l);
                im += real_at(of_a, in_a, batch, i, l) * real_at(of_b, in_b, batch, 2 * j + 1, l);
              }
              ASSERT_EQ(re, expected.real()) << to_string(p) << ": " << batch << ", " << i << ", " << j;
              ASSERT_EQ(im, expected.imag()) << to_string(p) << ": " << batch << ", " << i << ", " << j;
            }
          }
        }
      }
    }
  }
}

// As the memory of an operand allows: 16 bytes of a line, the two parts of a number, or one after the other.
TEST(ComplexSplit, ReadsWhatLiesTogetherAtOnce) {
  alignas(16) static float memory[64];
  const auto of = [](int offset, std::int64_t row, std::int64_t col) {
    Problem p = complex_problem_of(4, 4, 4);
    p.a = {memory + offset, row, col, 0};
    return split_operand(p.a, planes_of_a(p), nullptr);
  };
  EXPECT_TRUE(of(0, 4, 1).is_vector);
  EXPECT_TRUE(of(0, 1, 6).is_vector);   // lines along m
  EXPECT_FALSE(of(0, 5, 1).is_vector);  // every second line is 8 bytes off
  EXPECT_FALSE(of(2, 4, 1).is_vector);
  EXPECT_FALSE(of(0, 8, 2).is_vector);
  EXPECT_TRUE(of(0, 5, 1).is_paired);
  EXPECT_TRUE(of(2, 8, 2).is_paired);
  EXPECT_FALSE(of(1, 4, 1).is_paired);  // foreign memory may start at any real number
  EXPECT_EQ(of(0, 5, 1).line_stride, 10);
  EXPECT_EQ(of(0, 8, 2).step, 4);
}

// ---- emulated ------------------------------------------------------------------------------------------------------

// Every element has a thread: a block's warps take 2^lane_shift runs of 16 bytes of each of their lines.
TEST(EmulatedSelect, TheSplitCoversItsOperand) {
  for (const std::int64_t lines : {1, 3, 31, 32, 33, 1000}) {
    for (const std::int64_t length : {1, 4, 5, 127, 128, 129, 5000}) {
      for (const SplitForm form : {SplitForm::kReal, SplitForm::kApart}) {
        PlaneLayout layout;
        layout.operand_lines = lines, layout.operand_length = length, layout.batch = 3, layout.form = form;
        const SplitGrid grid = split_grid(layout);
        const std::int64_t run = (std::int64_t{1} << grid.lane_shift) * (form == SplitForm::kReal ? 4 : 2);
        EXPECT_GE(grid.run_blocks * run, length);
        EXPECT_LT((grid.run_blocks - 1) * run, length);
        EXPECT_GE(grid.line_blocks * (kSplitThreads >> grid.lane_shift) * kSplitLines, lines);
        EXPECT_LT((grid.line_blocks - 1) * (kSplitThreads >> grid.lane_shift) * kSplitLines, lines);
        EXPECT_EQ(grid.blocks, grid.line_blocks * grid.run_blocks * 3);
      }
    }
  }
}

TEST(EmulatedSelect, LongerChainsWhereKHidesWhatTheyCutOff) {
  for (const auto& [k, steps] : {std::pair<std::int64_t, int>{1, 1}, {511, 1}, {512, 2}, {8191, 2}, {8192, 4}}) {
    EXPECT_EQ(emulated_chain(k), steps) << k;
  }
}

// What the kernels take for granted of their launch.
void expect_sound(const Plan& plan, const Problem& problem, const DeviceFacts& device) {
  const std::string what = to_string(plan) + " for " + to_string(problem);
  const Problem p = row_major_problem(problem);
  ASSERT_EQ(plan.algorithm, Algorithm::kEmulated) << what;
  ASSERT_TRUE(plan.is_cuda && plan.config >= 0 && plan.config < kEmulatedTileCount) << what;
  const EmulatedTile& tile = kEmulatedTiles[plan.config];
  // In elements: a complex one is two real numbers along n, and along k.
  EXPECT_EQ(plan.tile_m, tile.m) << what;
  EXPECT_EQ(plan.tile_n, tile.n / real_parts(p.dtype)) << what;
  EXPECT_EQ(plan.tile_k, kWgmmaK / real_parts(p.dtype)) << what;
  EXPECT_EQ(plan.block[0] * plan.block[1], kEmulatedThreads) << what;
  EXPECT_LE(plan.dynamic_shared_bytes, device.shared_memory_opt_in) << what;
  EXPECT_EQ(plan.split_k % plan.tile_k, 0) << what;
  EXPECT_GE(plan.split_k * plan.splits, p.k) << what;
  EXPECT_LT(plan.split_k * (plan.splits - 1), p.k) << what << ": the last piece is empty";
  const std::int64_t items =
      round_up(ceil_div(p.m, tile.m), tile.cluster) * ceil_div(p.n, plan.tile_n) * p.batch * plan.splits;
  EXPECT_LE(items, std::numeric_limits<std::int32_t>::max()) << what;
  EXPECT_GE(plan.grid[0], 1) << what;
  EXPECT_LE(plan.grid[0], items) << what << ": a block without work";
  EXPECT_EQ(plan.grid[0] % plan.cluster, 0) << what << ": whole clusters";
  EXPECT_EQ(plan.cluster, tile.cluster) << what;

  const EmulatedWorkspace w = emulated_workspace(problem, plan);
  EXPECT_EQ(plan.workspace_bytes, w.bytes) << what;
  EXPECT_GE(w.planes_a, plan.splits > 1 ? partial_bytes(p, plan.splits) : 0) << what;
  EXPECT_GE(w.planes_b - w.planes_a, 3 * 2 * planes_of_a(p).plane_stride) << what;
  EXPECT_GE(w.subnormal - w.planes_b, 3 * 2 * planes_of_b(p).plane_stride) << what;
  const std::int64_t split_blocks = split_grid(planes_of_a(p)).blocks + split_grid(planes_of_b(p)).blocks;
  EXPECT_GE(w.bytes - w.subnormal, round_up(split_blocks, kSubnormalWord)) << what;
  EXPECT_EQ(w.subnormal % kSubnormalWord, 0) << what;
  for (const PlaneLayout& layout : {planes_of_a(p), planes_of_b(p)}) {
    EXPECT_GE(layout.pitch, layout.length) << what;
    EXPECT_EQ(layout.pitch % 8, 0) << what << ": not a pitch of TMA";
    EXPECT_EQ(layout.matrix_stride, layout.pitch * layout.lines) << what;
    EXPECT_EQ(layout.plane_stride, layout.matrix_stride * layout.batch) << what;
  }
  EXPECT_EQ(w.planes_a % 16, 0) << what;
  EXPECT_EQ(w.planes_b % 16, 0) << what;
}

TEST(EmulatedSelect, NeedsHopperAndFloat32OrComplex64) {
  for (const DType dtype : kAllDTypes) {
    for (const int capability : {75, 80, 89, 90, 100, 120}) {
      const bool expected = (dtype == DType::kFloat32 || dtype == DType::kComplex64) && capability == 90;
      Problem p = problem_of(64, 64, 64);
      p.dtype = dtype;
      EXPECT_EQ(emulated_available(dtype, device_of(capability)), expected);
      EXPECT_EQ(select(p, device_of(capability), Algorithm::kEmulated).has_value(), expected);
      EXPECT_EQ(emulated_plans(p, device_of(capability)).empty(), !expected);
    }
    EXPECT_FALSE(emulated_available(dtype, device_of(90, 227 * 1024 - 1)));
    EXPECT_FALSE(emulated_available(dtype, cpu_facts(2)));
    DeviceFacts narrow = h200_facts();
    narrow.max_threads_per_block = kEmulatedThreads - 1;
    EXPECT_FALSE(emulated_available(dtype, narrow));
  }
}

TEST(EmulatedSelect, PlansAreSound) {
  const DeviceFacts device = h200_facts();
  for (const std::int64_t m : {1, 63, 128, 129, 1000, 70000}) {
    for (const std::int64_t n : {1, 64, 127, 257, 4096}) {
      for (const std::int64_t k : {1, 63, 64, 65, 1000, 65536}) {
        for (const std::int64_t batch : {1, 3}) {
          for (const bool is_column_major : {false, true}) {
            for (Problem p : {problem_of(m, n, k, batch), complex_problem_of(m, n, k, batch)}) {
              if (is_column_major) p.d = {nullptr, 1, m, m * n};
              const auto chosen = emulated_plan(p, device);
              ASSERT_TRUE(chosen) << to_string(p);
              expect_sound(*chosen, p, device);
              for (const Plan& plan : emulated_plans(p, device)) expect_sound(plan, p, device);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

// As measured: many tiles are fastest as 128 x 128 in clusters; tiles of 64 rows fill the GPU where those leave much of
// a wave idle (512 x 6144 x 4096: 311 us, 363 with tiles of 128 x 128).
TEST(EmulatedSelect, SmallTilesWhereLargeOnesLeaveAWaveIdle) {
  for (const Problem& p : {problem_of(4096, 4096, 4096), problem_of(2048, 6144, 4096), problem_of(8192, 8192, 128)}) {
    const auto plan = emulated_plan(p, h200_facts());
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->tile_m * plan->tile_n, 128 * 128) << to_string(*plan);
    EXPECT_EQ(plan->cluster, 2) << to_string(*plan);
  }
  for (const Problem& p : {problem_of(512, 6144, 4096), problem_of(256, 4096, 4096), problem_of(1536, 1536, 1536)}) {
    const auto plan = emulated_plan(p, h200_facts());
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->tile_m, 64) << to_string(*plan);
    EXPECT_EQ(plan->splits, 1) << to_string(*plan);
  }
}

TEST(EmulatedSelect, EveryTileIsOffered) {
  for (const Problem& p : {problem_of(100, 200, 1024), complex_problem_of(100, 200, 512)}) {
    std::set<int> configs;
    std::set<std::int64_t> splits;
    for (const Plan& plan : emulated_plans(p, h200_facts())) {
      configs.insert(plan.config);
      splits.insert(plan.splits);
    }
    EXPECT_EQ(configs.size(), static_cast<std::size_t>(kEmulatedTileCount));
    EXPECT_EQ(splits, (std::set<std::int64_t>{1, 2, 3, 8}));
  }
}

// The plan of a complex product is that of the real one, but for its units, where both have chains of one length.
TEST(EmulatedSelect, ComplexProductsAreRealOnes) {
  for (const std::int64_t size : {64, 600, 1024, 2047, 4095}) {
    ASSERT_EQ(emulated_chain(size), emulated_chain(2 * size));
    const Problem complex = complex_problem_of(size, size, size), real = problem_of(size, 2 * size, 2 * size);
    const auto plan = emulated_plan(complex, h200_facts()), same = emulated_plan(real, h200_facts());
    ASSERT_TRUE(plan && same);
    EXPECT_EQ(plan->config, same->config) << size;
    EXPECT_EQ(plan->grid[0], same->grid[0]) << size;
    EXPECT_EQ(plan->splits, same->splits) << size;
    EXPECT_EQ(2 * plan->split_k, same->split_k) << size;
    const EmulatedWorkspace w = emulated_workspace(complex, *plan), v = emulated_workspace(real, *same);
    EXPECT_EQ(w.planes_a, v.planes_a) << size << ": partial sums of as many bytes";
    EXPECT_EQ(w.planes_b, v.planes_b) << size;
    EXPECT_EQ(w.subnormal, v.subnormal) << size;
    EXPECT_NEAR(emulated_cost(complex, h200_facts(), *plan), emulated_cost(real, h200_facts(), *same),
                0.1 * static_cast<double>(size));
  }
}

// Planes lie as their operand does, so that it is read along its lines, whatever its strides.
TEST(EmulatedSelect, PlanesKeepTheOrderOfTheOperand) {
  Problem p = problem_of(100, 200, 300, 2);
  const PlaneLayout a = planes_of_a(p), b = planes_of_b(p);
  EXPECT_FALSE(a.is_mn_major);
  EXPECT_TRUE(b.is_mn_major);
  EXPECT_EQ(a.lines, 100);
  EXPECT_EQ(a.length, 300);
  EXPECT_EQ(a.line_stride, 300);
  EXPECT_EQ(a.step, 1);
  EXPECT_EQ(b.lines, 300);
  EXPECT_EQ(b.length, 200);
  EXPECT_EQ(b.line_stride, 200);
  EXPECT_TRUE(a.is_batched && b.is_batched);
  p.a = {nullptr, 1, 101, 0};  // a transposed view, the same for both
  EXPECT_TRUE(planes_of_a(p).is_mn_major);
  EXPECT_FALSE(planes_of_a(p).is_batched);
  EXPECT_EQ(planes_of_a(p).batch, 1);
  p.a = {nullptr, 7, 900, 1};  // no unit stride
  EXPECT_TRUE(planes_of_a(p).is_mn_major);
  EXPECT_EQ(planes_of_a(p).step, 7);
  p.a = {nullptr, 1, 0, 0};  // one column, repeated
  EXPECT_TRUE(planes_of_a(p).is_mn_major);
  EXPECT_EQ(planes_of_a(p).line_stride, 0);
}

// A vector is one line: its planes are not padded to 64 elements for each of its own.
TEST(EmulatedSelect, VectorsAndThinMatricesAreHardlyPadded) {
  const Problem p = problem_of(100000, 3, 1);
  EXPECT_EQ(planes_of_a(p).lines, 1);
  EXPECT_LE(planes_of_a(p).plane_stride, 100000 + 64);
  EXPECT_EQ(planes_of_a(problem_of(100000, 3, 5)).pitch, 8);
  EXPECT_EQ(planes_of_b(problem_of(3, 1, 100000)).lines, 1);
}

TEST(EmulatedSelect, SizesBeyondItsCoordinatesAreRefused) {
  const std::int64_t huge = std::int64_t{1} << 31;
  for (const Problem& p :
       {problem_of(huge, 1, 1), problem_of(1, huge, 1), problem_of(1, 1, huge), problem_of(1, 1, 1, huge / 3),
        problem_of(huge / 2, 1, 1024), problem_of(0, 5, 5), problem_of(5, 0, 5), problem_of(5, 5, 0)}) {
    EXPECT_FALSE(emulated_plan(p, h200_facts())) << to_string(p);
    EXPECT_TRUE(emulated_plans(p, h200_facts()).empty()) << to_string(p);
    if (p.m > 0 && p.n > 0 && p.k > 0) {
      EXPECT_TRUE(select(p, h200_facts(), Algorithm::kAuto)) << to_string(p);
    }
  }
}

TEST(EmulatedSelect, ComplexSizesBeyondItsCoordinatesAreRefused) {
  const std::int64_t half = std::int64_t{1} << 30;
  for (const Problem& p : {complex_problem_of(1, half, 1), complex_problem_of(1, 1, half)}) {
    EXPECT_FALSE(emulated_plan(p, h200_facts())) << to_string(p);
    EXPECT_TRUE(emulated_plans(p, h200_facts()).empty()) << to_string(p);
    EXPECT_TRUE(select(p, h200_facts(), Algorithm::kAuto)) << to_string(p);
  }
  EXPECT_TRUE(emulated_plan(complex_problem_of(1, half / 2, 1), h200_facts()));
}

// The expected costs are those of the choice, and what is chosen costs least.
TEST(EmulatedSelect, TakesTheCheapestPlan) {
  for (const std::int64_t size : {100, 512, 1024, 3000, 8192}) {
    const Problem p = problem_of(size, size, size);
    const auto chosen = emulated_plan(p, h200_facts());
    ASSERT_TRUE(chosen);
    for (const Plan& plan : emulated_plans(p, h200_facts())) {
      if (plan.splits == 1) {
        EXPECT_LE(emulated_cost(p, h200_facts(), *chosen), emulated_cost(p, h200_facts(), plan)) << to_string(plan);
      }
    }
  }
}

TEST(Float32Select, AutoFollowsThePrecision) {
  const auto chosen = [](const Problem& p, const DeviceFacts& device) {
    return select(p, device, Algorithm::kAuto)->algorithm;
  };
  for (const std::int64_t size : {1024, 4095, 8192}) {
    // Only where it was shown to be as accurate.
    EXPECT_EQ(chosen(problem_of(size, size, size), h200_facts()), Algorithm::kEmulated);
    EXPECT_EQ(chosen(problem_of(size, size, kEmulatedAccurateK - 1), h200_facts()), Algorithm::kSimt);
    EXPECT_EQ(chosen(problem_of(size, size, size, 1, Float32Precision::kTf32), h200_facts()), Algorithm::kWgmma);
    EXPECT_NE(chosen(problem_of(size, size, size), device_of(80)), Algorithm::kEmulated);
    EXPECT_NE(chosen(problem_of(size, size, size, 1, Float32Precision::kTf32), device_of(80)), Algorithm::kWgmma);
  }
  // And where it is faster: in microseconds on an H200, simt and emulated, 15.9 and 20.2, 34.7 and 106, 64.5 and 120.
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{512, 512, 512}, {16, 4096, 4096}, {128, 128, 65536}}) {
    EXPECT_EQ(chosen(problem_of(m, n, k), h200_facts()), Algorithm::kSimt) << m << " " << n << " " << k;
  }
}

TEST(Complex64Select, AutoTakesTheTensorCoresWhereTheyAreFaster) {
  const auto chosen = [](std::int64_t size, std::int64_t k, int capability, Float32Precision precision) {
    Problem p = complex_problem_of(size, size, k);
    p.precision = precision;
    return select(p, device_of(capability), Algorithm::kAuto)->algorithm;
  };
  for (const Float32Precision precision : {Float32Precision::kIeee, Float32Precision::kTf32}) {
    for (const std::int64_t size : {1000, 1024, 2047, 4096}) {
      EXPECT_EQ(chosen(size, size, 90, precision), Algorithm::kEmulated) << size;
      EXPECT_NE(chosen(size, size, 80, precision), Algorithm::kEmulated) << size;
      EXPECT_EQ(chosen(size, kEmulatedAccurateK - 1, 90, precision), Algorithm::kSimt) << size;
    }
    EXPECT_EQ(chosen(256, 256, 90, precision), Algorithm::kSimt);
  }
}

// ---- tf32 ----------------------------------------------------------------------------------------------------------

TEST(Tf32Select, IsThereOnlyWhereItIsAllowed) {
  const auto listed = [](Float32Precision precision) {
    const std::vector<Algorithm> all = algorithms(DType::kFloat32, h200_facts(), precision);
    return std::count(all.begin(), all.end(), Algorithm::kWgmma) == 1;
  };
  EXPECT_TRUE(listed(Float32Precision::kTf32));
  EXPECT_FALSE(listed(Float32Precision::kIeee));
  EXPECT_TRUE(select(problem_of(64, 64, 64, 1, Float32Precision::kTf32), h200_facts(), Algorithm::kWgmma));
  EXPECT_FALSE(select(problem_of(64, 64, 64), h200_facts(), Algorithm::kWgmma));
  EXPECT_TRUE(wgmma_plans(problem_of(64, 64, 64), h200_facts()).empty());
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::kFloat32) continue;
    EXPECT_EQ(algorithms(dtype, h200_facts(), Float32Precision::kTf32), algorithms(dtype, h200_facts()));
  }
}

// The tensor cores take tf32 with k contiguous alone from shared memory; but a, which is b where the problem was
// exchanged, reaches them through registers in either order. So only where neither operand lies along k one is copied,
// the smaller; and with thin tiles the one with the short side.
TEST(Tf32Select, AtMostOneOperandOfTheOtherOrderIsCopied) {
  const std::int64_t m = 512, n = 768, k = 1024;
  for (const bool is_a_transposed : {false, true}) {
    for (const bool is_b_transposed : {false, true}) {
      Problem p = problem_of(m, n, k, 1, Float32Precision::kTf32);
      if (is_a_transposed) p.a = {nullptr, 1, m, 0};
      if (is_b_transposed) p.b = {nullptr, 1, k, 0};
      const std::vector<Plan> plans = wgmma_plans(p, h200_facts());
      EXPECT_GT(plans.size(), 30u);
      for (const Plan& plan : plans) {
        const std::string what = to_string(plan);
        const WgmmaTile& tile = kWgmmaTiles[plan.config];
        const Problem kernel_problem = wgmma_problem(p, plan);
        const bool is_thin = plan.tile_n < 64, is_copied = is_a_transposed && (!is_b_transposed || is_thin);
        const bool is_exchanged = is_thin || !is_b_transposed;
        EXPECT_EQ(kernel_problem.m, is_exchanged ? n : m) << what;
        EXPECT_FALSE(plan.is_a_packed) << what;
        EXPECT_EQ(plan.is_b_packed, is_copied) << what;
        const bool is_fed = is_exchanged ? !is_b_transposed : is_a_transposed;
        EXPECT_EQ(view_a(kernel_problem).is_mn_major, is_fed) << what;
        EXPECT_FALSE(view_b(kernel_problem).is_mn_major) << what;
        EXPECT_TRUE(!is_fed || wgmma_can_feed_a(tile)) << what;
        EXPECT_EQ(plan.dynamic_shared_bytes, wgmma_shared_bytes(is_fed ? feeding_a(tile) : tile)) << what;
        EXPECT_FALSE(plan.is_a_realigned || plan.is_b_realigned) << what;
        EXPECT_EQ(plan.tile_k, 32) << what;
        EXPECT_EQ(plan.split_k % 32, 0) << what;
        EXPECT_GE(plan.split_k * plan.splits, k) << what;
        EXPECT_GE(plan.workspace_bytes, is_copied ? m * k * 4 : 0) << what;
      }
    }
  }
}

// An operand off its alignment is copied as it lies where the kernel takes that order.
TEST(Tf32Select, CopiesTurnAsLittleAsPossible) {
  Problem p = problem_of(300, 401, 203, 1, Float32Precision::kTf32);
  for (const Plan& plan : wgmma_plans(p, h200_facts())) {
    if (plan.tile_n < 64) continue;
    const Problem kernel_problem = wgmma_problem(p, plan);
    EXPECT_TRUE(plan.is_a_packed && plan.is_b_packed) << to_string(plan);
    EXPECT_EQ(kernel_problem.m, 401) << to_string(plan);
    EXPECT_TRUE(view_a(kernel_problem).is_mn_major) << to_string(plan);
  }
  p.a = {nullptr, 1, 300, 0};
  p.b = {nullptr, 1, 203, 0};
  for (const Plan& plan : wgmma_plans(p, h200_facts())) {
    if (plan.tile_n < 64) continue;
    EXPECT_FALSE(plan.is_a_packed) << to_string(plan);
    EXPECT_TRUE(plan.is_b_packed) << to_string(plan);
    EXPECT_EQ(wgmma_problem(p, plan).m, 300) << to_string(plan);
  }
}

TEST(Tf32Select, FourElementsAreTheAlignmentOfTma) {
  Problem p = problem_of(64, 64, 100, 1, Float32Precision::kTf32);
  EXPECT_TRUE(view_a(p).is_addressable);
  p.a.row_stride = 102;
  EXPECT_FALSE(view_a(p).is_addressable);
  p.a.row_stride = 104;
  p.a.data = reinterpret_cast<const void*>(std::uintptr_t{4});
  EXPECT_FALSE(view_a(p).is_addressable);
  EXPECT_FALSE(view_a(p).is_mn_major);
  p.a = {nullptr, 1, 64, 0};
  EXPECT_TRUE(view_a(p).is_addressable && view_a(p).is_mn_major);
  p.a.col_stride = 66;
  EXPECT_TRUE(!view_a(p).is_addressable && view_a(p).is_mn_major);
  EXPECT_FALSE(stores_by_tma(p));
}

}  // namespace
}  // namespace pmpp::matmul
