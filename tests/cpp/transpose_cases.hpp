// Checks of a transpose kernel against the oracle, shared by the CPU and the CUDA tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "csrc/padded_transpose/problem.hpp"
#include "tests/cpp/oracle.hpp"

namespace pmpp::test {

inline constexpr int kElementSizes[] = {1, 2, 4, 8, 16};

struct TransposeCase {
  int element_size;
  std::int64_t m, n, batch = 1;
  Layout in = Layout::kRowMajor, out = Layout::kRowMajor;
  BatchLayout in_batch = BatchLayout::kPacked, out_batch = BatchLayout::kPacked;
  int guard = 3;
  int odd_offset = 0;
};

// Where a matrix lies, with unit stride along its rows, or along its columns where `transposed`.
struct Placement {
  int residue = 0;         // bytes behind a 16-byte boundary at which it begins, in whole elements
  std::int64_t pitch = 0;  // elements from one run of unit stride to the next; 0: as long as the run
  std::int64_t gap = 0;    // elements between matrices of a batch
  bool transposed = false;
};

// A transpose for kernels that care where rows begin.
struct PlacedTranspose {
  int element_size;
  std::int64_t m, n, batch = 1;
  Placement in{}, out{};
  // Elements before and after the output; without, a stray write leaves the allocation: the sanitizers' half.
  bool guarded = true;
};

inline Strided strided(const Placement& where, std::int64_t rows, std::int64_t cols, std::int64_t batch) {
  const std::int64_t runs = where.transposed ? cols : rows;
  const std::int64_t run = where.transposed ? rows : cols;
  const std::int64_t pitch = where.pitch > 0 ? where.pitch : run;
  Strided view{rows, cols, batch, pitch, 1, runs * pitch + where.gap};
  if (where.transposed) std::swap(view.row_stride, view.col_stride);
  return view;
}

struct TransposeData {
  TransposeCase spec;
  Buffer in, out;

  explicit TransposeData(const PlacedTranspose& asked)
      : spec{.element_size = asked.element_size, .m = asked.m, .n = asked.n, .batch = asked.batch} {
    const int size = spec.element_size;
    // Nothing follows the input, so that a read behind it leaves the allocation.
    in = Buffer(size, strided(asked.in, spec.m, spec.n, spec.batch), asked.in.residue / size, 0, Buffer::kPoison,
                Buffer::kPoison);
    std::mt19937_64 random(static_cast<std::uint64_t>(1000003 * spec.m + 1009 * spec.n + spec.batch));
    for (std::size_t at = 0; at < in.storage.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = random();
      std::memcpy(&in.storage[at], &word, std::min(sizeof(word), in.storage.size() - at));
    }
    const int guard = asked.guarded ? 64 / size : 0;
    out = Buffer(size, strided(asked.out, spec.n, spec.m, spec.batch), guard + asked.out.residue / size, guard,
                 Buffer::kGuard, Buffer::kPoison);
  }

  explicit TransposeData(const TransposeCase& asked) : spec(asked) {
    std::mt19937_64 random(static_cast<std::uint64_t>(1000003 * spec.m + 1009 * spec.n + spec.batch));
    in = Buffer(spec.element_size, strided(spec.in, spec.m, spec.n, spec.batch, spec.in_batch), spec.odd_offset,
                Buffer::kPoison);
    for (std::byte& byte : in.storage) {
      byte = static_cast<std::byte>(random());
    }
    out = Buffer(spec.element_size, strided(spec.out, spec.n, spec.m, spec.batch, spec.out_batch), spec.guard,
                 Buffer::kGuard);
  }

  transposition::Problem problem() {
    transposition::Problem p{};
    p.element_size = spec.element_size;
    p.m = spec.m, p.n = spec.n, p.batch = spec.batch;
    p.in = std::as_const(in).data();
    p.in_row_stride = in.view.row_stride, p.in_col_stride = in.view.col_stride;
    p.in_batch_stride = in.view.batch_stride;
    p.out = out.data();
    p.out_row_stride = out.view.row_stride, p.out_col_stride = out.view.col_stride;
    p.out_batch_stride = out.view.batch_stride;
    return p;
  }
};

using ExecuteTranspose = std::function<void(TransposeData&)>;

inline void check(const ExecuteTranspose& execute, TransposeData data) {
  const Buffer untouched = data.out;
  execute(data);
  bool good = true;
  data.in.for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
    if (good) {
      good = std::memcmp(data.in.address(b, i, j), data.out.address(b, j, i),
                         static_cast<std::size_t>(data.spec.element_size)) == 0;
      EXPECT_TRUE(good) << to_string(data.problem()) << ": out[" << b << "][" << j << "][" << i << "]";
    }
  });
  EXPECT_EQ(untouched.first_stray_write(data.out), -1) << to_string(data.problem()) << ": written outside out";
}

inline void check(const ExecuteTranspose& execute, const TransposeCase& spec) { check(execute, TransposeData(spec)); }

inline void check_transposes(const ExecuteTranspose& execute, int element_size,
                             const std::vector<std::int64_t>& tiles) {
  int count = 0;
  const auto run = [&](TransposeCase spec) {
    spec.guard = (count++ % 2) * 3;  // without a guard a stray write leaves the allocation: the sanitizers' half
    check(execute, spec);
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {{0, 0}, {0, 5}, {5, 0}, {1, 1}, {3, 7}, {1, 67}, {67, 1}};
  for (const std::int64_t t : tiles) {
    sizes.insert(sizes.end(), {{t, t}, {t - 1, t + 1}, {t + 1, t - 1}, {t, t + 1}, {2 * t + 1, t}, {t - 1, 2 * t}});
  }
  for (const auto& [m, n] : sizes) {
    run({element_size, m, n});
  }

  constexpr Layout kInputs[] = {Layout::kRowMajor,          Layout::kColumnMajor, Layout::kSliced,
                                Layout::kSlicedColumnMajor, Layout::kReversed,    Layout::kSameRow,
                                Layout::kSameColumn,        Layout::kSameElement};
  constexpr Layout kOutputs[] = {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kSlicedColumnMajor,
                                 Layout::kReversed};
  for (const Layout in : kInputs) {
    for (const Layout out : {Layout::kRowMajor, kOutputs[count % 5]}) {
      TransposeCase spec{element_size, 35, 18};
      spec.in = in, spec.out = out, spec.odd_offset = count % 2;
      run(spec);
    }
  }

  constexpr BatchLayout kBatches[] = {BatchLayout::kPacked, BatchLayout::kApart, BatchLayout::kReversed,
                                      BatchLayout::kShared};
  for (int i = 0; i < 4; ++i) {
    TransposeCase spec{element_size, 17, 34, 3};
    spec.in_batch = kBatches[i], spec.out_batch = kBatches[(i + 1) % 3];
    run(spec);
  }
  run({element_size, 17, 34, 0});
}

// A transpose whose elements lie 2^32 + 5 apart on both sides; see FarMatmul.
struct FarTranspose {
  static constexpr std::int64_t kFar = (std::int64_t{1} << 32) + 5;
  static constexpr std::size_t kBytes = static_cast<std::size_t>(kFar) + 4;
  struct Cell {
    std::int64_t offset;
    std::int8_t value;
  };
  static constexpr Cell kInputs[] = {{0, 1}, {1, 2}, {kFar, 3}, {kFar + 1, 4}};
  static constexpr Cell kOutputs[] = {{2, 1}, {3, 3}, {kFar + 2, 2}, {kFar + 3, 4}};

  static transposition::Problem problem(std::int8_t* base) {
    transposition::Problem p{};
    p.element_size = 1;
    p.m = p.n = 2;
    p.in = base, p.in_row_stride = kFar, p.in_col_stride = 1;
    p.out = base + 2, p.out_row_stride = kFar, p.out_col_stride = 1;
    return p;
  }
};

}  // namespace pmpp::test
