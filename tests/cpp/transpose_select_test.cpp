#include "csrc/padded_transpose/select.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/common/int_math.hpp"
#include "csrc/padded_transpose/config.hpp"
#include "tests/cpp/select_cases.hpp"

namespace pmpp::transposition {
namespace {

using test::device_with;
using test::expect_launchable;
using test::kLaunchLimitYZ;

constexpr int kElementSizes[] = {1, 2, 4, 8, 16};
constexpr Algorithm kCudaLadder[] = {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded, Algorithm::kPadded16,
                                     Algorithm::kVectorized};
// One tile after another; vectorized has grids of its own.
constexpr Algorithm kClassicLadder[] = {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded,
                                        Algorithm::kPadded16};
constexpr Algorithm kCpuLadder[] = {Algorithm::kNaive, Algorithm::kBlocked};

Problem problem_of(std::int64_t m, std::int64_t n, int element_size = 4, std::int64_t batch = 1) {
  Problem p{};
  p.element_size = element_size;
  p.m = m, p.n = n, p.batch = batch;
  p.in_row_stride = n, p.in_col_stride = 1, p.in_batch_stride = m * n;
  p.out_row_stride = m, p.out_col_stride = 1, p.out_batch_stride = m * n;
  return p;
}

TEST(TransposeNames, RoundTripAndAreThoseOfTheContract) {
  const std::pair<Algorithm, const char*> expected[] = {
      {Algorithm::kAuto, "auto"},      {Algorithm::kNaive, "naive"},       {Algorithm::kShared, "shared"},
      {Algorithm::kPadded, "padded"},  {Algorithm::kPadded16, "padded16"}, {Algorithm::kVectorized, "vectorized"},
      {Algorithm::kBlocked, "blocked"}};
  for (const auto& [algorithm, name] : expected) {
    EXPECT_STREQ(algorithm_name(algorithm), name);
    EXPECT_EQ(parse_algorithm(name), algorithm);
  }
  for (const char* name : {"", "fast", "Padded", "padded ", "padded1", "padded166", "vectorised", "tiled"}) {
    EXPECT_EQ(parse_algorithm(name), std::nullopt) << "'" << name << "'";
  }
}

TEST(TransposeAlgorithms, ListTheLadderInOrder) {
  for (const int size : kElementSizes) {
    EXPECT_EQ(algorithms(size, h200_facts()), std::vector<Algorithm>(std::begin(kCudaLadder), std::end(kCudaLadder)));
    EXPECT_EQ(algorithms(size, cpu_facts(4)), std::vector<Algorithm>(std::begin(kCpuLadder), std::end(kCpuLadder)));
  }
}

TEST(TransposeAlgorithms, NoneForOtherElementSizes) {
  for (const int size : {0, 3, 5, 6, 7, 12, 15, 17, 32, -1}) {
    for (const DeviceFacts& device : {cpu_facts(2), h200_facts()}) {
      EXPECT_TRUE(algorithms(size, device).empty()) << size;
      for (const Algorithm algorithm : kAllAlgorithms) {
        EXPECT_FALSE(select(problem_of(5, 6, size), device, algorithm)) << size << " " << algorithm_name(algorithm);
      }
    }
  }
}

// What is listed can be selected, and what can be selected is listed.
TEST(TransposeAlgorithms, AgreeWithSelect) {
  for (const DeviceFacts& device : {cpu_facts(1), h200_facts(), device_with(128, 49152), device_with(1024, 2048),
                                    device_with(64, 49152), device_with(1024, 0)}) {
    for (const int size : kElementSizes) {
      const std::vector<Algorithm> listed = algorithms(size, device);
      for (const Algorithm algorithm : kAllAlgorithms) {
        if (algorithm == Algorithm::kAuto) {
          continue;
        }
        const bool expected = std::find(listed.begin(), listed.end(), algorithm) != listed.end();
        const auto plan = select(problem_of(33, 34, size), device, algorithm);
        EXPECT_EQ(plan.has_value(), expected) << algorithm_name(algorithm) << " " << size;
        if (plan) {
          EXPECT_EQ(plan->algorithm, algorithm);
        }
      }
    }
  }
}

TEST(TransposeSelect, RefusesTheOtherDevicesAlgorithms) {
  for (const Algorithm algorithm :
       {Algorithm::kShared, Algorithm::kPadded, Algorithm::kPadded16, Algorithm::kVectorized}) {
    EXPECT_FALSE(select(problem_of(8, 8), cpu_facts(2), algorithm)) << algorithm_name(algorithm);
  }
  EXPECT_FALSE(select(problem_of(8, 8), h200_facts(), Algorithm::kBlocked));
}

TEST(TransposeSelect, AutoTakesWhatTheDeviceCanDo) {
  EXPECT_EQ(select(problem_of(8, 8), cpu_facts(2), Algorithm::kAuto)->algorithm, Algorithm::kBlocked);
  for (const int size : kElementSizes) {
    EXPECT_EQ(select(problem_of(2048, 2048, size), h200_facts(), Algorithm::kAuto)->algorithm, Algorithm::kVectorized)
        << size;
  }
  // Without shared memory only naive is left, and with too few threads nothing is.
  EXPECT_EQ(select(problem_of(8, 8), device_with(1024, 0), Algorithm::kAuto)->algorithm, Algorithm::kNaive);
  EXPECT_FALSE(select(problem_of(8, 8), device_with(64, 49152), Algorithm::kAuto));
}

// cp.async, 1,024 threads, 48 KiB of shared memory for every block and 80 KiB for one that opts in.
TEST(TransposeSelect, AutoTakesPaddedWhereVectorizedCannotRun) {
  const auto automatic = [](const DeviceFacts& device) {
    const Problem large = problem_of(2048, 2048);
    EXPECT_EQ(select(large, device, Algorithm::kVectorized).has_value(),
              select(large, device, Algorithm::kAuto)->algorithm == Algorithm::kVectorized);
    return select(large, device, Algorithm::kAuto)->algorithm;
  };
  DeviceFacts least = device_with(1024, 49152);
  least.compute_capability = 80;
  least.shared_memory_opt_in = 81920;
  EXPECT_EQ(automatic(least), Algorithm::kVectorized);
  DeviceFacts older = least;
  older.compute_capability = 75;
  EXPECT_EQ(automatic(older), Algorithm::kPadded);
  DeviceFacts fewer_threads = least;
  fewer_threads.max_threads_per_block = 1023;
  EXPECT_EQ(automatic(fewer_threads), Algorithm::kPadded);
  DeviceFacts less_shared = least;
  less_shared.shared_memory_per_block = 49151;
  EXPECT_EQ(automatic(less_shared), Algorithm::kPadded);
  DeviceFacts less_opt_in = least;
  less_opt_in.shared_memory_opt_in = 81919;
  EXPECT_EQ(automatic(less_opt_in), Algorithm::kPadded);
  less_shared.shared_memory_per_block = 0;
  EXPECT_EQ(automatic(less_shared), Algorithm::kNaive);
}

// Its blocks are smaller. The thresholds count elements for each multiprocessor.
TEST(TransposeSelect, AutoTakesPaddedForSmallProblems) {
  const auto automatic = [](std::int64_t m, std::int64_t n, int size, std::int64_t batch = 1) {
    return select(problem_of(m, n, size, batch), h200_facts(), Algorithm::kAuto)->algorithm;
  };
  constexpr std::int64_t kSms = 132;
  // On boundaries: bytes alone.
  EXPECT_EQ(automatic(512, 512, 1), Algorithm::kPadded);
  EXPECT_EQ(automatic(1024, 1024, 1), Algorithm::kVectorized);
  for (const int size : {2, 4, 8, 16}) EXPECT_EQ(automatic(256, 256, size), Algorithm::kVectorized) << size;
  // Off them, and in strips.
  const struct {
    int size;
    std::int64_t elements;
  } cases[] = {{1, 12000 * kSms}, {2, 4000 * kSms}, {4, 4000 * kSms}, {8, 2048 * kSms}};
  for (const auto& [size, elements] : cases) {
    const std::int64_t n = 1001;
    const Algorithm smaller = size == 1 ? Algorithm::kPadded : Algorithm::kPadded16;
    EXPECT_EQ(automatic(elements / n - 1, n, size), smaller) << size;
    EXPECT_EQ(automatic(elements / n + 1, n, size), Algorithm::kVectorized) << size;
    EXPECT_EQ(automatic(elements / 3 - 1, 3, size), smaller) << size;
    EXPECT_EQ(automatic(3, elements / 3 + 1, size), Algorithm::kVectorized) << size;
    // A batch counts as a whole.
    EXPECT_EQ(automatic(33, 35, size, elements / (33 * 35) + 1), Algorithm::kVectorized) << size;
  }
  // What is a copy is copied, however small.
  EXPECT_EQ(automatic(1, 5, 4), Algorithm::kVectorized);
}

// The widths and paddings of the contract: 32 x 32, 32 x 33 and 16 x 17.
TEST(TransposeSelect, TilesAreThoseOfTheContract) {
  const auto shared = select(problem_of(100, 200), h200_facts(), Algorithm::kShared);
  const auto padded = select(problem_of(100, 200), h200_facts(), Algorithm::kPadded);
  const auto padded16 = select(problem_of(100, 200), h200_facts(), Algorithm::kPadded16);
  ASSERT_TRUE(shared && padded && padded16);
  EXPECT_EQ(std::make_tuple(shared->tile_m, shared->tile_n, shared->padding), std::make_tuple(32, 32, 0));
  EXPECT_EQ(std::make_tuple(padded->tile_m, padded->tile_n, padded->padding), std::make_tuple(32, 32, 1));
  EXPECT_EQ(std::make_tuple(padded16->tile_m, padded16->tile_n, padded16->padding), std::make_tuple(16, 16, 1));
}

TEST(TransposeSelect, SharedMemoryDecides) {
  // 32 x 32 x 4 = 4096 bytes without padding, 32 x 33 x 4 = 4224 with it, 16 x 17 x 4 = 1088 for the small tile.
  const struct {
    int shared_memory;
    std::vector<Algorithm> expected;
  } cases[] = {
      {4224, {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded, Algorithm::kPadded16}},
      {4223, {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded16}},
      {4096, {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded16}},
      {4095, {Algorithm::kNaive, Algorithm::kPadded16}},
      {1088, {Algorithm::kNaive, Algorithm::kPadded16}},
      {1087, {Algorithm::kNaive}},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(algorithms(4, device_with(1024, c.shared_memory)), c.expected) << c.shared_memory;
  }
}

TEST(TransposeSelect, GridsCoverEveryTile) {
  for (const Algorithm algorithm : kClassicLadder) {
    for (const int size : kElementSizes) {
      for (const std::int64_t m : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 1000}) {
        for (const std::int64_t n : {1, 16, 17, 31, 32, 33, 65}) {
          const auto plan = select(problem_of(m, n, size, 3), h200_facts(), algorithm);
          ASSERT_TRUE(plan);
          expect_launchable(*plan, h200_facts());
          EXPECT_EQ(plan->grid[0], (m + plan->tile_m - 1) / plan->tile_m) << "m " << m;
          EXPECT_EQ(plan->grid[1], (n + plan->tile_n - 1) / plan->tile_n) << "n " << n;
          EXPECT_EQ(plan->grid[2], 3);
          EXPECT_EQ(plan->tile_n, plan->block[0]);
        }
      }
    }
  }
}

TEST(TransposeSelect, LargeSizesStayWithinTheLaunchLimits) {
  const std::int64_t huge = std::int64_t{1} << 40;
  for (const Algorithm algorithm : kCudaLadder) {
    for (const auto& p : {problem_of(huge, 3), problem_of(3, huge), problem_of(3, 3, 1, huge), problem_of(65536, 65536),
                          problem_of(3, 65535 * 32 + 1)}) {
      const auto plan = select(p, h200_facts(), algorithm);
      ASSERT_TRUE(plan) << to_string(p);
      expect_launchable(*plan, h200_facts());
      for (const std::int64_t extent : plan->grid) {
        EXPECT_GE(extent, 1) << to_string(*plan);
      }
    }
  }
  for (const Algorithm algorithm : kClassicLadder) {
    const auto rows = select(problem_of(5000000, 3), h200_facts(), algorithm);
    ASSERT_TRUE(rows);
    EXPECT_GT(rows->grid[0], kLaunchLimitYZ);
    EXPECT_EQ(rows->grid[0], ceil_div(5000000, rows->tile_m));
  }
}

TEST(TransposeSelect, EmptyProblemsHaveAPlan) {
  for (const DeviceFacts& device : {cpu_facts(3), h200_facts()}) {
    for (const Algorithm algorithm : algorithms(4, device)) {
      for (const auto& p : {problem_of(0, 5), problem_of(5, 0), problem_of(0, 0), problem_of(5, 5, 4, 0)}) {
        const auto plan = select(p, device, algorithm);
        ASSERT_TRUE(plan) << to_string(p);
        EXPECT_EQ(plan->tasks, 0) << to_string(p);
      }
    }
  }
}

TEST(TransposeSelect, CpuTasksCoverTheMatrix) {
  for (const Algorithm algorithm : kCpuLadder) {
    for (const auto& [m, n] : {std::pair<int, int>{1, 1}, {31, 33}, {256, 32}, {257, 33}, {1000, 3}}) {
      const auto plan = select(problem_of(m, n, 8, 3), cpu_facts(4), algorithm);
      ASSERT_TRUE(plan);
      EXPECT_FALSE(plan->is_cuda);
      ASSERT_GT(plan->tile_m, 0);
      ASSERT_GT(plan->tile_n, 0);
      EXPECT_EQ(plan->tasks, 3 * ceil_div(m, plan->tile_m) * ceil_div(n, plan->tile_n));
    }
  }
}

TEST(TransposePrinting, APlanIsOneLineThatNamesTheAlgorithmAndTheLaunch) {
  std::set<std::string> lines;
  for (const DeviceFacts& device : {cpu_facts(3), h200_facts()}) {
    for (const Algorithm algorithm : algorithms(4, device)) {
      const auto plan = select(problem_of(100, 200), device, algorithm);
      ASSERT_TRUE(plan);
      const std::string line = to_string(*plan);
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      EXPECT_EQ(line.rfind(std::string(algorithm_name(algorithm)) + " ", 0), 0u) << line;
      lines.insert(line);
    }
  }
  EXPECT_EQ(lines.size(), 7u) << "different plans print differently";
  EXPECT_EQ(lines.count("padded 32x32+1 grid 4x7x1 block 32x8"), 1u);
  EXPECT_EQ(lines.count("padded16 16x16+1 grid 7x13x1 block 16x8"), 1u);
  const auto line_of = [](const Problem& problem) {
    return to_string(select(problem, h200_facts(), Algorithm::kVectorized).value());
  };
  EXPECT_EQ(line_of(problem_of(512, 512)), "vectorized aligned 32x32 grid 256x1x1 block 64x1");
  EXPECT_EQ(line_of(problem_of(1, 512)), "vectorized driver copy contiguous");
}

TEST(TransposePrinting, AProblemIsOneLineWithItsSizes) {
  const std::string line = to_string(problem_of(101, 202, 16, 7));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  for (const char* part : {"16", "101", "202", "7"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in: " << line;
  }
}

// ---- vectorized ----------------------------------------------------------------------------------------------------

// Where a matrix begins, in bytes behind a boundary. Selection looks at nothing else of an address.
const void* at_residue(int bytes) { return test::address(std::uintptr_t{4096} + bytes); }

// Rows `pitch` elements apart on both sides; 0: as far as they are wide.
struct Placed {
  int in_residue = 0, out_residue = 0;
  std::int64_t in_pitch = 0, out_pitch = 0;
  std::int64_t in_gap = 0, out_gap = 0;  // elements between matrices of a batch
};

Problem placed(std::int64_t m, std::int64_t n, int element_size, const Placed& where, std::int64_t batch = 1) {
  Problem p = problem_of(m, n, element_size, batch);
  p.in = at_residue(where.in_residue);
  p.out = const_cast<void*>(at_residue(where.out_residue));
  if (where.in_pitch > 0) p.in_row_stride = where.in_pitch;
  if (where.out_pitch > 0) p.out_row_stride = where.out_pitch;
  p.in_batch_stride = m * p.in_row_stride + where.in_gap;
  p.out_batch_stride = n * p.out_row_stride + where.out_gap;
  return p;
}

Problem transposed_view(Problem p, std::int64_t pitch) {
  p.in_row_stride = 1;
  p.in_col_stride = pitch;
  p.in_batch_stride = p.n * pitch;
  return p;
}

Plan vectorized(const Problem& p, const DeviceFacts& device = h200_facts()) {
  const auto plan = select(p, device, Algorithm::kVectorized);
  EXPECT_TRUE(plan) << to_string(p);
  return plan.value_or(Plan{});
}

void expect_method(const Problem& p, Method expected) {
  EXPECT_STREQ(method_name(vectorized(p).method), method_name(expected)) << to_string(p);
}

// What serves a matrix that is neither narrow nor on boundaries.
Method anywhere(int element_size) { return element_size == 1 ? Method::kStaged : Method::kGather; }

bool is_tile(Method method) {
  return method == Method::kAligned || method == Method::kStaged || method == Method::kGather;
}

// Problems of every kind, of sizes on both sides of every threshold, with any number of matrices.
std::vector<Problem> problems(int size, std::int64_t batch) {
  const std::int64_t per_chunk = 16 / size;
  std::vector<Problem> result;
  for (const std::int64_t m : {1, 2, 3, 16, 31, 64, 129, 160, 161, 256, 1000, 1024, 100003}) {
    for (const std::int64_t n : {1, 2, 5, 16, 33, 64, 128, 160, 161, 255, 512, 2049, 65536}) {
      result.push_back(placed(m, n, size, {}, batch));
      result.push_back(placed(m, n, size, {.in_pitch = n + 3}, batch));
      result.push_back(placed(m, n, size, {.out_pitch = m + 5}, batch));
      result.push_back(placed(m, n, size, {.in_gap = 1, .out_gap = 3}, batch));
      result.push_back(placed(m, n, size, {.in_residue = 16 - size, .out_residue = (3 * size) % 16}, batch));
      result.push_back(placed(
          m, n, size, {.in_pitch = round_up(n, per_chunk) + per_chunk, .out_pitch = round_up(m, per_chunk) + per_chunk},
          batch));
      result.push_back(transposed_view(placed(m, n, size, {}, batch), m));
      result.push_back(transposed_view(placed(m, n, size, {.in_residue = 16 - size}, batch), m + 1));
      Problem stepped = placed(m, n, size, {.in_pitch = 2 * n + 1}, batch);
      stepped.in_col_stride = 2;
      result.push_back(stepped);
    }
  }
  return result;
}

TEST(VectorizedMethods, WholeChunksOnBoundariesAreAligned) {
  for (const int size : kElementSizes) {
    expect_method(placed(1024, 2048, size, {}), Method::kAligned);
    expect_method(placed(1024, 2048, size, {.in_pitch = 2048 + 16, .out_pitch = 1024 + 32}), Method::kAligned);
    expect_method(placed(1024, 2048, size, {.in_gap = 16, .out_gap = 48}, 3), Method::kAligned);
  }
}

// Rows of 8 bytes that start in the middle of 32-byte sectors are gathered, where large tiles have enough of them.
TEST(VectorizedMethods, LargeMatricesOfHalvedSectorsAreGathered) {
  for (const int size : kElementSizes) {
    const Method large = size == 8 ? Method::kGather : Method::kAligned;
    const std::int64_t half = 16 / size;
    expect_method(placed(4096, 4096, size, {}), Method::kAligned);
    expect_method(placed(4096, 4096, size, {.in_pitch = 4096 + half}), large);
    expect_method(placed(4096, 4096, size, {.out_pitch = 4096 + half}), large);
    expect_method(placed(4096, 4096, size, {.in_residue = 16}), large);
    expect_method(placed(4096, 4096, size, {.out_residue = 16}), large);
    expect_method(placed(512, 512, size, {.in_pitch = 512 + half, .out_pitch = 512 + half}), Method::kAligned);
    if (size != 8) continue;
    // Whole sectors on the side that is written need no rows before a tile's own.
    EXPECT_EQ(vectorized(placed(4096, 4096, size, {.in_pitch = 4096 + half})).halo, 0);
    EXPECT_EQ(vectorized(placed(4096, 4096, size, {.out_pitch = 4096 + half})).halo, 32);
  }
}

// Blocks walk along source rows where tiles of a row share fetches that the cache would otherwise forget in between.
TEST(VectorizedTiles, WalkAlongSourceRowsWhereTilesShareFetches) {
  for (const int size : kElementSizes) {
    const auto along_source = [&](std::int64_t m, std::int64_t n) {
      const Plan plan = vectorized(placed(m, n, size, {}));
      EXPECT_EQ(plan.method, Method::kAligned) << to_string(plan);
      return plan.across;
    };
    const std::int64_t half = 32 / size;  // elements of half a fetch
    EXPECT_EQ(along_source(131072, 2048 + half), size <= 2);
    EXPECT_FALSE(along_source(131072, 2048));
    EXPECT_FALSE(along_source(8192, 2048 + half));
  }
}

// Strips that fill the width of a tile need no kernel of their own, if they lie on boundaries.
TEST(VectorizedMethods, StripsAsWideAsATileAreTiles) {
  for (const int size : {2, 4, 8}) {
    const std::int64_t side = 256 / size;
    expect_method(placed(65536, side, size, {}), Method::kAligned);
    expect_method(placed(side, 65536, size, {}), Method::kAligned);
    expect_method(placed(65537, side, size, {}), Method::kNarrowSource);
    expect_method(placed(side, 65537, size, {}), Method::kNarrowDest);
  }
}

TEST(VectorizedMethods, OneThingOffABoundaryIsEnough) {
  for (const int size : {1, 2, 4, 8}) {
    const Method other = anywhere(size);
    for (int residue = size; residue < 16; residue += size) {
      const std::int64_t elements = residue / size;
      expect_method(placed(1024, 2048, size, {.in_residue = residue}), other);
      expect_method(placed(1024, 2048, size, {.out_residue = residue}), other);
      expect_method(placed(1024, 2048, size, {.in_pitch = 2048 + elements}), other);
      expect_method(placed(1024, 2048, size, {.out_pitch = 1024 + elements}), other);
      expect_method(placed(1024, 2048, size, {.in_gap = elements}, 2), other);
      expect_method(placed(1024, 2048, size, {.out_gap = elements}, 2), other);
      // Sides that are no whole chunks, in rows that are.
      expect_method(placed(1024 + elements, 2048, size, {.out_pitch = 2048}), other);
      expect_method(placed(1024, 2048 + elements, size, {.in_pitch = 4096}), other);
      // The stride of a batch of one is never used.
      expect_method(placed(1024, 2048, size, {.in_gap = elements, .out_gap = elements}), Method::kAligned);
    }
  }
  // 16 bytes are a chunk: only a base can be off, and then it is off its own element.
  for (const auto& p : {placed(1023, 2047, 16, {}), placed(1023, 2047, 16, {.in_pitch = 2049, .out_pitch = 1031})}) {
    expect_method(p, Method::kAligned);
  }
}

TEST(VectorizedMethods, FewColumnsInOneStrip) {
  for (const int size : kElementSizes) {
    for (std::int64_t n = 2; n <= 160; ++n) {
      const Method method = vectorized(placed(100003, n, size, {})).method;
      if (n * size <= 256) {
        EXPECT_EQ(method, Method::kNarrowSource) << n << " of " << size;
      } else {
        EXPECT_TRUE(method == Method::kNarrowSource || is_tile(method)) << n << " of " << size;
      }
      // Rows that do not lie one behind the other are no strip.
      EXPECT_TRUE(is_tile(vectorized(placed(100003, n, size, {.in_pitch = n + 1})).method)) << n << " of " << size;
      expect_method(placed(100003, n, size, {.out_pitch = 100003 + 1}), method);
    }
    EXPECT_TRUE(is_tile(vectorized(placed(100003, 161, size, {})).method)) << size;
  }
}

TEST(VectorizedMethods, FewRowsIntoOneStrip) {
  for (const int size : kElementSizes) {
    for (std::int64_t m = 2; m <= 160; ++m) {
      const Method method = vectorized(placed(m, 100003, size, {})).method;
      if (m * size <= 256) {
        EXPECT_EQ(method, Method::kNarrowDest) << m << " of " << size;
      } else {
        EXPECT_TRUE(method == Method::kNarrowDest || is_tile(method)) << m << " of " << size;
      }
      EXPECT_TRUE(is_tile(vectorized(placed(m, 100003, size, {.out_pitch = m + 1})).method)) << m << " of " << size;
      expect_method(placed(m, 100003, size, {.in_pitch = 100003 + 2}), method);
    }
    EXPECT_TRUE(is_tile(vectorized(placed(161, 100003, size, {})).method)) << size;
  }
}

TEST(VectorizedMethods, TransposedViewsAreCopied) {
  for (const int size : kElementSizes) {
    for (const auto& [m, n] : {std::pair<int, int>{1000, 37}, {3, 5000}, {1024, 1024}}) {
      expect_method(transposed_view(placed(m, n, size, {}), m), Method::kDriverCopy);
      expect_method(transposed_view(placed(m, n, size, {}, 3), m), Method::kDriverCopy);
      expect_method(transposed_view(placed(m, n, size, {}), m + 1), Method::kCopy);
      expect_method(transposed_view(placed(m, n, size, {.out_pitch = m + 4}), m), Method::kCopy);
      expect_method(transposed_view(placed(m, n, size, {.out_gap = 1}, 3), m), Method::kCopy);
    }
    // A column-major result of a row-major input: the same with the roles exchanged.
    Problem p = placed(300, 500, size, {});
    p.out_row_stride = 1;
    p.out_col_stride = p.n;
    expect_method(p, Method::kDriverCopy);
    p.out_col_stride = p.n + 1;
    expect_method(p, Method::kCopy);
    // And of a column-major input: a transpose with the roles exchanged.
    p = transposed_view(p, 300);
    EXPECT_TRUE(is_tile(vectorized(p).method)) << to_string(vectorized(p));
  }
}

TEST(VectorizedMethods, VectorsAreCopied) {
  for (const int size : kElementSizes) {
    expect_method(placed(1, 1, size, {}), Method::kDriverCopy);
    expect_method(placed(1, 777, size, {}), Method::kDriverCopy);
    expect_method(placed(777, 1, size, {}), Method::kDriverCopy);
    expect_method(placed(1, 777, size, {.in_residue = size % 16, .out_residue = 16 - size}), Method::kDriverCopy);
    // One row of a matrix with a pitch is contiguous, one column is not.
    expect_method(placed(1, 777, size, {.in_pitch = 1000}), Method::kDriverCopy);
    expect_method(placed(777, 1, size, {.in_pitch = 1000}), Method::kStrided);
    // Rows of a batch with a pitch of its own.
    expect_method(placed(1, 777, size, {.in_gap = 5}, 3), Method::kCopy);
  }
}

TEST(VectorizedMethods, ExpandedAndReversedInputs) {
  for (const int size : {1, 2, 4, 8}) {
    Problem same_row = placed(1024, 2048, size, {});
    same_row.in_row_stride = 0;
    expect_method(same_row, Method::kAligned);
    same_row.in = at_residue(size);
    expect_method(same_row, anywhere(size));

    Problem upside_down = placed(1024, 2048, size, {});
    upside_down.in_row_stride = -2048;
    expect_method(upside_down, Method::kAligned);
    upside_down.in_row_stride = -2049;
    expect_method(upside_down, anywhere(size));

    Problem same_column = placed(1024, 2048, size, {});
    same_column.in_row_stride = 1;
    same_column.in_col_stride = 0;
    expect_method(same_column, Method::kCopy);

    Problem mirrored = placed(1024, 2048, size, {});
    mirrored.in_col_stride = -1;
    expect_method(mirrored, Method::kStrided);

    Problem same_element = placed(1024, 2048, size, {});
    same_element.in_row_stride = same_element.in_col_stride = 0;
    expect_method(same_element, Method::kStrided);
  }
}

TEST(VectorizedMethods, NoUnitStrideOrAnElementOffItsOwnSizeIsStrided) {
  for (const int size : kElementSizes) {
    for (const auto& [m, n] : {std::pair<int, int>{1024, 2048}, {1000, 5}, {5, 1000}}) {
      Problem stepped = placed(m, n, size, {.in_pitch = 2 * n});
      stepped.in_col_stride = 2;
      expect_method(stepped, Method::kStrided);
      Problem apart = placed(m, n, size, {.out_pitch = 3 * m});
      apart.out_col_stride = 3;
      expect_method(apart, Method::kStrided);
      if (size >= 4) {
        expect_method(placed(m, n, size, {.in_residue = size / 2}), Method::kStrided);
        expect_method(placed(m, n, size, {.out_residue = size / 2}), Method::kStrided);
        expect_method(transposed_view(placed(m, n, size, {.in_residue = size / 2}), m), Method::kStrided);
      }
    }
  }
}

// A smaller tile exactly where a larger one makes too few blocks for each multiprocessor: 2 on boundaries, elsewhere 5,
// 10 of single bytes, whose largest tile is smaller, and 4.
TEST(VectorizedTiles, SmallOnesOnlyWhereLargeOnesAreTooFew) {
  for (const int size : kElementSizes) {
    for (const int residue : {0, size % 16}) {
      for (std::int64_t side = 512; side <= 16384; side += 512) {
        for (const std::int64_t batch : {1, 2, 7}) {
          const Plan plan = vectorized(placed(side, side, size, {.in_residue = residue}, batch));
          ASSERT_TRUE(is_tile(plan.method)) << to_string(plan);
          const bool aligned = plan.method == Method::kAligned;
          const auto shape = [&](int level) {
            return aligned     ? aligned_tile(size, level)
                   : size == 1 ? staged_tile(level, true)
                               : gather_tile(size, level);
          };
          const auto blocks = [&](int level) {
            return ceil_div(side * size, shape(level).source_bytes) * ceil_div(side * size, shape(level).dest_bytes) *
                   batch;
          };
          const int large = aligned ? 2 : size == 1 ? 10 : 5;
          const int expected = blocks(0) >= large * 132 ? 0 : blocks(1) >= (aligned ? 2 : 4) * 132 ? 1 : 2;
          EXPECT_EQ(plan.level, expected) << to_string(plan);
          EXPECT_EQ(plan.tile_m * size, shape(expected).dest_bytes);
          EXPECT_EQ(plan.tile_n * size, shape(expected).source_bytes);
        }
      }
    }
  }
}

TEST(VectorizedLaunches, FitTheDevice) {
  for (const int size : kElementSizes) {
    for (const std::int64_t batch : {1, 3, 70000}) {
      for (const Problem& p : problems(size, batch)) {
        const Plan plan = vectorized(p);
        const std::string what = to_string(plan) + ", " + to_string(p);
        if (plan.method == Method::kDriverCopy) continue;
        expect_launchable(plan, h200_facts());
        for (const std::int64_t extent : plan.grid) {
          EXPECT_GE(extent, 1) << what;
        }
        // Lanes of a warp work together.
        EXPECT_EQ(plan.block[0] * plan.block[1] % 32, 0) << what;
        const bool opts_in = (plan.method == Method::kAligned || plan.method == Method::kGather) && plan.level == 0;
        EXPECT_LE(plan.shared_bytes, opts_in ? 81920 : 49152) << what;
        EXPECT_EQ(plan.workspace_bytes, 0) << what;
        EXPECT_LE(plan.shared_bytes, h200_facts().shared_memory_opt_in) << what;
      }
    }
  }
}

TEST(VectorizedLaunches, APlanDependsOnNothingElse) {
  for (const int size : kElementSizes) {
    for (const Problem& p : problems(size, 2)) {
      const Plan first = vectorized(p);
      // Elsewhere, with the same alignment to the boundaries that count.
      Problem moved = p;
      moved.in = static_cast<const char*>(p.in) + 4096;
      moved.out = static_cast<char*>(p.out) + 8192;
      const Plan second = vectorized(p), third = vectorized(moved);
      for (const Plan& other : {second, third}) {
        EXPECT_EQ(to_string(first), to_string(other));
        EXPECT_EQ(std::make_tuple(first.level, first.halo, first.shared_bytes, first.pitch, first.pieces, first.lanes,
                                  first.across),
                  std::make_tuple(other.level, other.halo, other.shared_bytes, other.pitch, other.pieces, other.lanes,
                                  other.across));
      }
    }
  }
}

// How many elements the destination row of a matrix of the batch begins behind a boundary from which its first block
// writes on: what its blocks cover ends so much earlier.
std::int64_t latest_start(const Problem& p, std::int64_t boundary) {
  std::int64_t latest = 0;
  for (std::int64_t z = 0; z < std::min<std::int64_t>(p.batch, 64); ++z) {
    for (std::int64_t j = 0; j < std::min<std::int64_t>(p.n, 64); ++j) {
      const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(p.out)) +
                           (z * p.out_batch_stride + j * p.out_row_stride) * p.element_size;
      latest = std::max(latest, address % boundary / p.element_size);
    }
  }
  return latest;
}

void expect_covered(const Problem& p, const DeviceFacts& device) {
  const Plan plan = vectorized(p, device);
  const std::string what = to_string(plan) + ", " + to_string(p);
  if (is_tile(plan.method)) {
    const std::int64_t col_tiles = ceil_div(p.n, plan.tile_n);
    ASSERT_EQ(plan.grid[0] % col_tiles, 0) << what;
    const std::int64_t row_tiles = plan.grid[0] / col_tiles;
    // Where every destination row starts on a boundary of 16 bytes, blocks write their own tile and nothing before it;
    // with the large tile of 8 bytes only on one of 32.
    const bool whole_sectors = plan.method == Method::kGather && plan.level == 0 && p.element_size == 8;
    const bool from_boundaries = latest_start(p, whole_sectors ? 32 : 16) == 0;
    const std::int64_t boundary = plan.method == Method::kAligned || from_boundaries ? 1 : plan.level > 0 ? 16 : 32;
    EXPECT_GE(row_tiles * plan.tile_m - latest_start(p, boundary), p.m) << what;
    EXPECT_LE(row_tiles, ceil_div(p.m, plan.tile_m) + 1) << what;
    EXPECT_GE(plan.grid[1] * plan.grid[2], p.batch) << what;
  } else if (plan.method == Method::kNarrowSource) {
    EXPECT_EQ(plan.tile_n, p.n) << what;
    EXPECT_GE(plan.grid[0] * plan.tile_m - latest_start(p, 16), p.m) << what;
    EXPECT_GE(plan.grid[1] * plan.grid[2], p.batch) << what;
  } else if (plan.method == Method::kNarrowDest) {
    EXPECT_EQ(plan.tile_m, p.m) << what;
    EXPECT_EQ(plan.grid[0], ceil_div(p.n, plan.tile_n)) << what;
    EXPECT_GE(plan.grid[1] * plan.grid[2], p.batch) << what;
  } else if (plan.method == Method::kStrided) {
    // As for padded, for the sides that normalising may have exchanged.
    const Problem q = normalized(p);
    EXPECT_EQ(plan.grid[0], ceil_div(q.m, plan.tile_m)) << what;
    EXPECT_EQ(plan.grid[1], std::min(ceil_div(q.n, plan.tile_n), kLaunchLimitYZ)) << what;
    EXPECT_EQ(plan.grid[2], std::min(p.batch, kLaunchLimitYZ)) << what;
  }
}

TEST(VectorizedLaunches, CoverEveryTile) {
  DeviceFacts tiny = h200_facts();
  tiny.sm_count = 1;
  for (const int size : kElementSizes) {
    for (const std::int64_t batch : {1, 3, 70000}) {
      for (const Problem& p : problems(size, batch)) {
        expect_covered(p, h200_facts());
        expect_covered(p, tiny);
      }
    }
    // Around a whole number of tiles, with destination rows that start anywhere.
    for (std::int64_t m = 500; m <= 520; ++m) {
      for (int residue = 0; residue < 16; residue += size) {
        for (const std::int64_t pitch : {std::int64_t{520}, std::int64_t{520} + residue / size}) {
          const Problem p = placed(m, 700, size, {.out_residue = residue, .in_pitch = 701, .out_pitch = pitch}, 2);
          expect_covered(p, h200_facts());
          expect_covered(p, tiny);
        }
      }
    }
  }
}

TEST(VectorizedLaunches, SizesBeyondALaunchFallBackToBlocksThatStride) {
  const std::int64_t huge = std::int64_t{1} << 40;
  for (const int size : kElementSizes) {
    for (const Problem& p :
         {placed(256 * huge, 3, size, {}), placed(3, 256 * huge, size, {}), placed(huge, 1024, size, {}),
          placed(1024, huge, size, {.in_pitch = huge + 1}), placed(1024, 1024, size, {}, kLaunchLimitYZ * 65535 + 1),
          placed(2, 3, size, {}, kLaunchLimitYZ * 65535 + 1)}) {
      const Plan plan = vectorized(p);
      EXPECT_EQ(plan.method, Method::kStrided) << to_string(plan);
      expect_launchable(plan, h200_facts());
    }
    // As many matrices as y and z hold, and one more than y.
    for (const std::int64_t batch : {std::int64_t{65535}, std::int64_t{65536}, std::int64_t{65535} * 65535}) {
      for (const Problem& p :
           {placed(1024, 1024, size, {}, batch), placed(1000, 7, size, {}, batch), placed(7, 1000, size, {}, batch)}) {
        const Plan plan = vectorized(p);
        EXPECT_NE(plan.method, Method::kStrided) << to_string(plan);
        expect_launchable(plan, h200_facts());
        EXPECT_GE(plan.grid[1] * plan.grid[2], batch);
      }
    }
    // Strips are long: what would be too many tiles is not too many of them.
    for (const Problem& p : {placed(huge / 4, 3, size, {}), placed(3, huge / 4, size, {})}) {
      EXPECT_NE(vectorized(p).method, Method::kStrided);
      expect_launchable(vectorized(p), h200_facts());
    }
    const std::int64_t side = std::int64_t{1} << 29;  // 2^62 bytes of the largest elements
    const Plan copy = vectorized(transposed_view(placed(side, side, size, {}), side + 1));
    EXPECT_EQ(copy.method, Method::kCopy);
    expect_launchable(copy, h200_facts());
  }
}

// Every element that a problem moves: from where to where, relative to the bases.
std::vector<std::pair<std::int64_t, std::int64_t>> movement(const Problem& p) {
  std::vector<std::pair<std::int64_t, std::int64_t>> moves;
  for (std::int64_t z = 0; z < p.batch; ++z) {
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        moves.emplace_back(z * p.out_batch_stride + j * p.out_row_stride + i * p.out_col_stride,
                           z * p.in_batch_stride + i * p.in_row_stride + j * p.in_col_stride);
      }
    }
  }
  std::sort(moves.begin(), moves.end());
  return moves;
}

auto strides_of(const Problem& p) {
  return std::make_tuple(p.m, p.n, p.batch, p.in_row_stride, p.in_col_stride, p.in_batch_stride, p.out_row_stride,
                         p.out_col_stride, p.out_batch_stride);
}

TEST(NormalizedProblem, MovesTheSameElements) {
  for (const std::int64_t m : {0, 1, 2, 5}) {
    for (const std::int64_t n : {0, 1, 3, 4}) {
      for (const std::int64_t batch : {0, 1, 3}) {
        for (const std::int64_t in_row : {-7, 0, 1, 5}) {
          for (const std::int64_t in_col : {-3, 0, 1, 6}) {
            for (const auto& [out_row, out_col] :
                 {std::pair<std::int64_t, std::int64_t>{m, 1}, {1, n}, {m + 2, 1}, {1, n + 3}, {2 * m, 2}, {-m, -1}}) {
              Problem p = problem_of(m, n, 4, batch);
              p.in_row_stride = in_row, p.in_col_stride = in_col, p.in_batch_stride = 101;
              p.out_row_stride = out_row, p.out_col_stride = out_col, p.out_batch_stride = 103;
              const Problem q = normalized(p);
              EXPECT_EQ(movement(p), movement(q)) << to_string(p) << " became " << to_string(q);
              EXPECT_EQ(q.element_size, 4);
            }
          }
        }
      }
    }
  }
}

TEST(NormalizedProblem, IsNormalizedAlready) {
  for (const int size : kElementSizes) {
    for (const std::int64_t batch : {1, 3}) {
      for (const Problem& p : problems(size, batch)) {
        const Problem once = normalized(p);
        EXPECT_EQ(strides_of(normalized(once)), strides_of(once)) << to_string(p);
        EXPECT_EQ(std::make_pair(once.in, once.out), std::make_pair(p.in, p.out));
      }
    }
  }
}

TEST(NormalizedProblem, VectorsAndColumnMajorResultsBecomeRows) {
  for (const Problem& p : {problem_of(1, 9), problem_of(9, 1)}) {
    const Problem row = normalized(p);
    EXPECT_EQ(std::make_tuple(row.m, row.n, row.in_row_stride, row.out_col_stride),
              std::make_tuple(std::int64_t{9}, std::int64_t{1}, std::int64_t{1}, std::int64_t{1}));
  }
  Problem p = problem_of(5, 9);
  p.out_row_stride = 1, p.out_col_stride = 9;
  const Problem row = normalized(p);
  EXPECT_EQ(std::make_tuple(row.m, row.n, row.out_row_stride, row.out_col_stride),
            std::make_tuple(std::int64_t{9}, std::int64_t{5}, std::int64_t{9}, std::int64_t{1}));
}

}  // namespace
}  // namespace pmpp::transposition
