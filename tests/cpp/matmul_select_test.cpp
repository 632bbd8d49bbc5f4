#include "csrc/tiled_matmul/select.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "csrc/common/int_math.hpp"
#include "tests/cpp/select_cases.hpp"

namespace pmpp::matmul {
namespace {

using test::device_with;
using test::kLaunchLimitYZ;

// The steps whose grids are those of their tiles; the others have tests of their own.
constexpr Algorithm kCudaLadder[] = {Algorithm::kNaive, Algorithm::kTiled, Algorithm::kTiledDynamic};
constexpr Algorithm kCpuLadder[] = {Algorithm::kNaive, Algorithm::kBlocked};

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = DType::kFloat32,
                   std::int64_t batch = 1) {
  return test::contiguous_problem(dtype, m, n, k, batch);
}

void expect_launchable(const Plan& plan, const DeviceFacts& device) {
  test::expect_launchable(plan, device);
  EXPECT_LE(plan.dynamic_shared_bytes, device.shared_memory_per_block);
}

TEST(MatmulNames, RoundTripAndAreThoseOfTheContract) {
  const std::pair<Algorithm, const char*> expected[] = {
      {Algorithm::kAuto, "auto"},      {Algorithm::kNaive, "naive"},
      {Algorithm::kTiled, "tiled"},    {Algorithm::kTiledDynamic, "tiled_dynamic"},
      {Algorithm::kSimt, "simt"},      {Algorithm::kMma, "mma"},
      {Algorithm::kWgmma, "wgmma"},    {Algorithm::kEmulated, "emulated"},
      {Algorithm::kBlocked, "blocked"}};
  for (const auto& [algorithm, name] : expected) {
    EXPECT_STREQ(algorithm_name(algorithm), name);
    EXPECT_EQ(parse_algorithm(name), algorithm);
  }
}

TEST(MatmulNames, UnknownOnesParseToNothing) {
  for (const char* name : {"", "fast", "Naive", "naive ", " tiled", "tiled_", "tile", "autos"}) {
    EXPECT_EQ(parse_algorithm(name), std::nullopt) << "'" << name << "'";
  }
}

TEST(MatmulAlgorithms, ListTheLadderInOrder) {
  for (const DType dtype : kAllDTypes) {
    std::vector<Algorithm> cuda(std::begin(kCudaLadder), std::end(kCudaLadder));
    cuda.push_back(Algorithm::kSimt);
    if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) {
      cuda.insert(cuda.end(), {Algorithm::kMma, Algorithm::kWgmma});
    }
    if (dtype == DType::kFloat64 || dtype == DType::kComplex128) cuda.push_back(Algorithm::kMma);
    if (dtype == DType::kFloat32 || dtype == DType::kComplex64) cuda.push_back(Algorithm::kEmulated);
    EXPECT_EQ(algorithms(dtype, h200_facts()), cuda) << dtype_name(dtype);
    EXPECT_EQ(algorithms(dtype, cpu_facts(4)), std::vector<Algorithm>(std::begin(kCpuLadder), std::end(kCpuLadder)))
        << dtype_name(dtype);
  }
}

// What is listed can be selected, and what can be selected is listed.
TEST(MatmulAlgorithms, AgreeWithSelect) {
  const DeviceFacts devices[] = {cpu_facts(1),          cpu_facts(64),           h200_facts(),
                                 device_with(64, 1024), device_with(256, 49152), device_with(1024, 4096),
                                 device_with(32, 49152)};
  for (const DeviceFacts& device : devices) {
    for (const DType dtype : kAllDTypes) {
      const std::vector<Algorithm> listed = algorithms(dtype, device);
      for (const Algorithm algorithm : kAllAlgorithms) {
        if (algorithm == Algorithm::kAuto) continue;
        const bool expected = std::find(listed.begin(), listed.end(), algorithm) != listed.end();
        const auto plan = select(problem_of(33, 34, 35, dtype), device, algorithm);
        EXPECT_EQ(plan.has_value(), expected) << algorithm_name(algorithm) << " " << dtype_name(dtype);
        if (plan) {
          EXPECT_EQ(plan->algorithm, algorithm);
        }
      }
      const auto automatic = select(problem_of(33, 34, 35, dtype), device, Algorithm::kAuto);
      EXPECT_EQ(automatic.has_value(), !listed.empty()) << dtype_name(dtype);
      if (automatic) {
        EXPECT_NE(std::find(listed.begin(), listed.end(), automatic->algorithm), listed.end());
      }
    }
  }
}

TEST(MatmulSelect, RefusesTheOtherDevicesAlgorithms) {
  EXPECT_FALSE(select(problem_of(8, 8, 8), cpu_facts(2), Algorithm::kTiled));
  EXPECT_FALSE(select(problem_of(8, 8, 8), cpu_facts(2), Algorithm::kTiledDynamic));
  EXPECT_FALSE(select(problem_of(8, 8, 8), h200_facts(), Algorithm::kBlocked));
}

TEST(MatmulSelect, AutoOnTheCpuIsBlocked) {
  const auto plan = select(problem_of(8, 8, 8), cpu_facts(2), Algorithm::kAuto);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->algorithm, Algorithm::kBlocked);
  EXPECT_FALSE(plan->is_cuda);
}

TEST(MatmulSelect, AutoOnCudaTakesSimtForWhatTheTensorCoresDoNot) {
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) continue;
    const bool is_double = dtype == DType::kFloat64 || dtype == DType::kComplex128;
    for (const Problem& p :
         {problem_of(1, 1, 1, dtype), problem_of(is_double ? 15 : 128, 128, 128, dtype), problem_of(0, 4, 4, dtype),
          problem_of(4000, 4001, 0, dtype), problem_of(huge, 3, 3, dtype), problem_of(3, 3, huge, dtype),
          problem_of(7, 9, 11, dtype, huge)}) {
      const auto plan = select(p, h200_facts(), Algorithm::kAuto);
      ASSERT_TRUE(plan) << to_string(p);
      EXPECT_EQ(plan->algorithm, Algorithm::kSimt) << to_string(p);
    }
    // More partial sums than could be stored.
    EXPECT_EQ(select(problem_of(huge, huge, huge, dtype), h200_facts(), Algorithm::kAuto)->algorithm,
              is_double ? Algorithm::kMma : Algorithm::kTiledDynamic);
  }
}

TEST(MatmulSelect, AutoWithoutRoomForSimtTakesWideTilesUnlessTheyLeaveHalfOfTheDeviceIdle) {
  constexpr std::int64_t huge = std::int64_t{1} << 60;
  const struct {
    std::int64_t m, n, batch;
    Algorithm expected;
  } cases[] = {
      {8, 8, 1, Algorithm::kTiled},
      {0, 0, 0, Algorithm::kTiled},
      {128, 128, 1, Algorithm::kTiled},           // 16 wide tiles
      {1, 65 * 32, 1, Algorithm::kTiled},         // 65, one below half of 132
      {1, 66 * 32, 1, Algorithm::kTiledDynamic},  // 66
      {66 * 32, 1, 1, Algorithm::kTiledDynamic},
      {128, 128, 5, Algorithm::kTiledDynamic},  // 80 over the batch
      {1024, 1024, 1, Algorithm::kTiledDynamic},
      {huge, huge, huge, Algorithm::kTiledDynamic}  // would overflow if multiplied out
  };
  DeviceFacts tight = h200_facts();
  tight.shared_memory_opt_in = 16384;
  for (const auto& c : cases) {
    const auto plan = select(problem_of(c.m, c.n, 9, DType::kFloat32, c.batch), tight, Algorithm::kAuto);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->algorithm, c.expected) << c.m << " " << c.n << " " << c.batch << ": " << to_string(*plan);
  }
  auto narrow = h200_facts();
  narrow.max_threads_per_block = 64;  // neither a 16- nor a 32-wide tile
  const auto plan = select(problem_of(8, 8, 8), narrow, Algorithm::kAuto);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->algorithm, Algorithm::kTiledDynamic);
}

TEST(MatmulSelect, IsPure) {
  for (const DeviceFacts& device : {cpu_facts(3), h200_facts()}) {
    const auto first = select(problem_of(100, 200, 300), device, Algorithm::kAuto);
    const auto second = select(problem_of(100, 200, 300), device, Algorithm::kAuto);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(to_string(*first), to_string(*second));
  }
}

TEST(MatmulSelect, GridsCoverEveryTile) {
  for (const Algorithm algorithm : kCudaLadder) {
    for (const std::int64_t m : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 1000, 2398}) {
      for (const std::int64_t n : {1, 8, 15, 16, 17, 31, 32, 33, 132}) {
        for (const std::int64_t batch : {1, 5}) {
          const auto plan = select(problem_of(m, n, 9, DType::kFloat32, batch), h200_facts(), algorithm);
          ASSERT_TRUE(plan);
          expect_launchable(*plan, h200_facts());
          const int tile = algorithm == Algorithm::kTiledDynamic ? 32 : 16;
          EXPECT_EQ(plan->tile_m, tile);
          EXPECT_EQ(plan->tile_n, tile);
          EXPECT_EQ(plan->tile_k, algorithm == Algorithm::kNaive ? 0 : tile);
          EXPECT_EQ(plan->block[0], tile);
          EXPECT_EQ(plan->block[1], tile);
          EXPECT_EQ(plan->grid[0], (m + tile - 1) / tile) << "m " << m;
          EXPECT_EQ(plan->grid[1], (n + tile - 1) / tile) << "n " << n;
          EXPECT_EQ(plan->grid[2], batch);
        }
      }
    }
  }
}

TEST(MatmulSelect, EmptyProblemsHaveAPlan) {
  for (const DeviceFacts& device : {cpu_facts(3), h200_facts()}) {
    for (const Algorithm algorithm : algorithms(DType::kFloat32, device)) {
      if (algorithm == Algorithm::kEmulated) continue;  // has nothing to plan, and auto takes another
      for (const auto& p : {problem_of(0, 5, 3), problem_of(5, 0, 3), problem_of(5, 5, 0), problem_of(0, 0, 0),
                            problem_of(5, 5, 5, DType::kFloat32, 0)}) {
        const auto plan = select(p, device, algorithm);
        ASSERT_TRUE(plan) << to_string(p);
        if (!device.is_cuda) {
          EXPECT_EQ(plan->tasks > 0, p.m > 0 && p.n > 0 && p.batch > 0) << to_string(p);
        }
      }
    }
  }
}

TEST(MatmulSelect, MoreThan65535RowTilesLieOnGridX) {
  for (const Algorithm algorithm : kCudaLadder) {
    const auto plan = select(problem_of(5000000, 3, 3), h200_facts(), algorithm);
    ASSERT_TRUE(plan);
    expect_launchable(*plan, h200_facts());
    EXPECT_GT(plan->grid[0], kLaunchLimitYZ);
    EXPECT_EQ(plan->grid[0], ceil_div(5000000, plan->tile_m));
  }
}

TEST(MatmulSelect, SizesBeyondTheGridAndBeyond32BitsStayWithinTheLaunchLimits) {
  const std::int64_t huge = std::int64_t{1} << 40;
  for (const Algorithm algorithm : kCudaLadder) {
    for (const auto& p : {problem_of(huge, 3, 3), problem_of(3, huge, 3), problem_of(3, 3, huge),
                          problem_of(3, 3, 3, DType::kInt8, huge), problem_of(65536, 65536, 7)}) {
      const auto plan = select(p, h200_facts(), algorithm);
      ASSERT_TRUE(plan) << to_string(p);
      expect_launchable(*plan, h200_facts());
      for (const std::int64_t extent : plan->grid) {
        EXPECT_GE(extent, 1) << to_string(*plan);
      }
    }
  }
  for (const Algorithm algorithm : kCpuLadder) {
    const auto plan = select(problem_of(huge, 3, 3), cpu_facts(2), algorithm);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->tasks, ceil_div(huge, plan->exchanged ? plan->tile_n : plan->tile_m));
  }
}

// The widest of 32, 16 and 8 whose threads and whose two tiles fit.
TEST(MatmulSelect, DynamicTileFollowsTheDevice) {
  const struct {
    int max_threads, shared_memory;
    DType dtype;
    int tile;  // 0: none fits
  } cases[] = {
      {1024, 49152, DType::kFloat32, 32},    {1024, 49152, DType::kComplex128, 32},
      {1023, 49152, DType::kFloat32, 16},    {512, 49152, DType::kUInt8, 16},
      {256, 49152, DType::kFloat32, 16},     {255, 49152, DType::kFloat32, 8},
      {64, 49152, DType::kComplex128, 8},    {63, 49152, DType::kUInt8, 0},
      {1024, 8192, DType::kFloat32, 32},     {1024, 8191, DType::kFloat32, 16},
      {1024, 32768, DType::kComplex128, 32}, {1024, 32767, DType::kComplex128, 16},
      {1024, 8192, DType::kComplex128, 16},  {1024, 8191, DType::kComplex128, 8},
      {1024, 2048, DType::kUInt8, 32},       {1024, 2047, DType::kUInt8, 16},
      {1024, 128, DType::kInt8, 8},          {1024, 127, DType::kInt8, 0},
      {1024, 2047, DType::kComplex64, 8},    {1024, 1023, DType::kComplex64, 0},
      {1024, 4096, DType::kBFloat16, 32},    {1024, 4095, DType::kFloat16, 16},
  };
  for (const auto& c : cases) {
    const DeviceFacts device = device_with(c.max_threads, c.shared_memory);
    const auto plan = select(problem_of(100, 90, 80, c.dtype), device, Algorithm::kTiledDynamic);
    const std::string what = std::string(dtype_name(c.dtype)) + " on " + std::to_string(c.max_threads) + " threads, " +
                             std::to_string(c.shared_memory) + " bytes";
    ASSERT_EQ(plan.has_value(), c.tile > 0) << what;
    if (plan) {
      expect_launchable(*plan, device);
      EXPECT_EQ(plan->tile_m, c.tile) << what;
      EXPECT_EQ(plan->tile_n, c.tile) << what;
      EXPECT_EQ(plan->tile_k, c.tile) << what;
      EXPECT_EQ(plan->block[0] * plan->block[1], c.tile * c.tile) << what;
      EXPECT_EQ(plan->dynamic_shared_bytes, 2 * c.tile * c.tile * element_size(c.dtype)) << what;
      EXPECT_EQ(plan->grid[0], ceil_div(100, c.tile)) << what;
      EXPECT_EQ(plan->grid[1], ceil_div(90, c.tile)) << what;
    }
  }
}

TEST(MatmulSelect, SmallDevicesKeepOnlyTheDynamicTile) {
  const DeviceFacts small = device_with(64, 16384);
  EXPECT_EQ(algorithms(DType::kFloat32, small), std::vector<Algorithm>{Algorithm::kTiledDynamic});
  EXPECT_FALSE(select(problem_of(8, 8, 8), small, Algorithm::kNaive));
  EXPECT_FALSE(select(problem_of(8, 8, 8), small, Algorithm::kTiled));
  const auto automatic = select(problem_of(8, 8, 8), small, Algorithm::kAuto);
  ASSERT_TRUE(automatic);
  EXPECT_EQ(automatic->algorithm, Algorithm::kTiledDynamic);
  EXPECT_TRUE(algorithms(DType::kFloat32, device_with(63, 16384)).empty());
  EXPECT_FALSE(select(problem_of(8, 8, 8), device_with(63, 16384), Algorithm::kAuto));
  // Two 16 x 16 tiles of complex128 take 8 KiB, a byte more than there is.
  EXPECT_FALSE(select(problem_of(8, 8, 8, DType::kComplex128), device_with(1024, 8191), Algorithm::kTiled));
  EXPECT_TRUE(select(problem_of(8, 8, 8, DType::kComplex128), device_with(1024, 8192), Algorithm::kTiled));
}

TEST(MatmulSelect, CpuTasksCoverTheResult) {
  for (const Algorithm algorithm : kCpuLadder) {
    for (const DType dtype : kAllDTypes) {
      for (const auto& [m, n] : {std::pair<int, int>{1, 1}, {63, 127}, {64, 128}, {65, 257}, {1000, 3}}) {
        const auto plan = select(problem_of(m, n, 5, dtype, 3), cpu_facts(4), algorithm);
        ASSERT_TRUE(plan);
        EXPECT_FALSE(plan->is_cuda);
        ASSERT_GT(plan->tile_m, 0);
        ASSERT_GT(plan->tile_n, 0);
        const int rows = plan->exchanged ? n : m, cols = plan->exchanged ? m : n;
        EXPECT_EQ(plan->tasks, 3 * ceil_div(rows, plan->tile_m) * ceil_div(cols, plan->tile_n));
      }
    }
  }
}

TEST(MatmulPrinting, APlanIsOneLineThatNamesTheAlgorithmAndTheLaunch) {
  std::set<std::string> lines;
  for (const DeviceFacts& device : {cpu_facts(3), h200_facts()}) {
    for (const Algorithm algorithm : algorithms(DType::kFloat32, device)) {
      const auto plan = select(problem_of(100, 200, 300), device, algorithm);
      ASSERT_TRUE(plan);
      const std::string line = to_string(*plan);
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      EXPECT_EQ(line.rfind(std::string(algorithm_name(algorithm)) + " ", 0), 0u) << line;
      lines.insert(line);
    }
  }
  EXPECT_EQ(lines.size(), 7u) << "different plans print differently";
  EXPECT_EQ(lines.count("tiled 16x16x16 grid 7x13x1 block 16x16 shared 0"), 1u);
  EXPECT_EQ(lines.count("tiled_dynamic 32x32x32 grid 4x7x1 block 32x32 shared 8192"), 1u);
}

TEST(MatmulPrinting, AProblemIsOneLineWithItsSizes) {
  const std::string line = to_string(problem_of(101, 202, 303, DType::kBFloat16, 7));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  for (const char* part : {"bfloat16", "101", "202", "303", "7"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in: " << line;
  }
}

}  // namespace
}  // namespace pmpp::matmul
