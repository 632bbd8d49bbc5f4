// The CUDA transpose kernels against the oracle, also under compute-sanitizer; see cuda_matmul_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/common/int_math.hpp"
#include "csrc/padded_transpose/config.hpp"
#include "csrc/padded_transpose/launch.hpp"
#include "csrc/padded_transpose/pack.hpp"
#include "csrc/padded_transpose/select.hpp"
#include "tests/cpp/cuda_support.hpp"
#include "tests/cpp/transpose_cases.hpp"

namespace pmpp::test {
namespace {

using transposition::Algorithm;
using transposition::Method;
using transposition::Plan;
using transposition::Problem;

constexpr Algorithm kLadder[] = {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded, Algorithm::kPadded16,
                                 Algorithm::kVectorized};
// The kernels whose blocks stride on where a grid was clamped.
constexpr Algorithm kStriding[] = {Algorithm::kNaive, Algorithm::kShared, Algorithm::kPadded, Algorithm::kPadded16};

// `one_block` cuts the grid down to a single block, which then has to stride over everything.
ExecuteTranspose on_cuda(Algorithm algorithm, bool one_block = false) {
  return [=](TransposeData& data) {
    Problem problem = data.problem();
    auto plan = transposition::select(problem, current_device_facts(), algorithm);
    ASSERT_TRUE(plan) << to_string(problem);
    ASSERT_EQ(plan->algorithm, algorithm);
    if (one_block) {
      plan->grid[0] = plan->grid[1] = plan->grid[2] = 1;
    }
    const DeviceMemory in(data.in.storage), out(data.out.storage);
    const DeviceMemory workspace(std::vector<std::byte>(static_cast<std::size_t>(plan->workspace_bytes)));
    problem.in = in.at(data.in.offset_bytes());
    problem.out = out.at(data.out.offset_bytes());
    PMPP_ASSERT_CUDA(transposition::launch(*plan, problem, workspace.at(0), nullptr)) << to_string(problem);
    PMPP_ASSERT_CUDA(cudaDeviceSynchronize()) << to_string(*plan) << " " << to_string(problem);
    out.read(data.out.storage);
  };
}

class CudaTranspose : public NeedsCuda<::testing::TestWithParam<std::tuple<Algorithm, int>>> {
 protected:
  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<Algorithm, int>>& info) {
  return std::string(transposition::algorithm_name(std::get<0>(info.param))) + "_" +
         std::to_string(std::get<1>(info.param)) + "_bytes";
}

INSTANTIATE_TEST_SUITE_P(All, CudaTranspose,
                         ::testing::Combine(::testing::ValuesIn(kLadder), ::testing::ValuesIn(kElementSizes)),
                         name_of_case);

TEST_P(CudaTranspose, MovesEveryElementAndNothingElse) { check_transposes(on_cuda(algorithm()), size(), {8, 16, 32}); }

class CudaTransposeStriding : public CudaTranspose {};

INSTANTIATE_TEST_SUITE_P(All, CudaTransposeStriding,
                         ::testing::Combine(::testing::ValuesIn(kStriding), ::testing::ValuesIn(kElementSizes)),
                         name_of_case);

TEST_P(CudaTransposeStriding, OneBlockStridesOverEverything) {
  check(on_cuda(algorithm(), true), TransposeCase{size(), 67, 70, 3});
}

class CudaTransposeLaunch : public NeedsCuda<::testing::TestWithParam<Algorithm>> {};

INSTANTIATE_TEST_SUITE_P(All, CudaTransposeLaunch, ::testing::ValuesIn(kLadder),
                         [](const auto& info) { return std::string(transposition::algorithm_name(info.param)); });

// More row tiles than grid.y or grid.z could hold, and more column tiles and batches than they do hold.
TEST_P(CudaTransposeLaunch, MoreThan65535TilesOnEachAxis) {
  constexpr std::int64_t beyond = 65535 * 32 + 35;
  check(on_cuda(GetParam()), TransposeCase{1, beyond, 2});
  check(on_cuda(GetParam()), TransposeCase{1, 2, beyond});
  check(on_cuda(GetParam()), TransposeCase{1, 2, 3, 65535 + 5});
}

TEST_P(CudaTransposeLaunch, ElementsBeyond32BitOffsets) {
  std::size_t free = 0, total = 0;
  PMPP_ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  const DeviceMemory memory(free > FarTranspose::kBytes + (std::size_t{1} << 30) ? FarTranspose::kBytes : 0);
  auto* const base = static_cast<std::int8_t*>(memory.at(0));
  if (base == nullptr) {
    GTEST_SKIP() << "needs " << FarTranspose::kBytes << " bytes of device memory, " << free << " are free";
  }
  for (const auto& [offset, value] : FarTranspose::kInputs) {
    PMPP_ASSERT_CUDA(cudaMemcpy(base + offset, &value, 1, cudaMemcpyHostToDevice));
  }
  const Problem problem = FarTranspose::problem(base);
  const auto plan = transposition::select(problem, current_device_facts(), GetParam());
  ASSERT_TRUE(plan);
  PMPP_ASSERT_CUDA(transposition::launch(*plan, problem, nullptr, nullptr));
  PMPP_ASSERT_CUDA(cudaDeviceSynchronize());
  for (const auto& [offset, expected] : FarTranspose::kOutputs) {
    std::int8_t actual = 0;
    PMPP_ASSERT_CUDA(cudaMemcpy(&actual, base + offset, 1, cudaMemcpyDeviceToHost));
    EXPECT_EQ(actual, expected) << "at " << offset;
  }
}

// A launch goes to the stream that it is given: captured there, it runs nothing until the graph is replayed.
TEST_P(CudaTransposeLaunch, IsCapturedOnItsStream) {
  const auto captured = [this](TransposeData& data) {
    Problem problem = data.problem();
    const auto plan = transposition::select(problem, current_device_facts(), GetParam());
    ASSERT_TRUE(plan);
    const DeviceMemory in(data.in.storage), out(data.out.storage);
    problem.in = in.at(data.in.offset_bytes());
    problem.out = out.at(data.out.offset_bytes());
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    PMPP_ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    PMPP_ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    PMPP_ASSERT_CUDA(transposition::launch(*plan, problem, nullptr, stream));
    PMPP_ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    PMPP_ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 1u);
    std::vector<std::byte> before = data.out.storage;
    out.read(before);
    EXPECT_EQ(before, data.out.storage) << "ran while it was only being captured";
    PMPP_ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    PMPP_ASSERT_CUDA(cudaGraphLaunch(executable, stream));
    PMPP_ASSERT_CUDA(cudaStreamSynchronize(stream));
    out.read(data.out.storage);
    EXPECT_EQ(cudaSuccess, cudaGraphExecDestroy(executable));
    EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
    EXPECT_EQ(cudaSuccess, cudaStreamDestroy(stream));
  };
  check(ExecuteTranspose(captured), TransposeCase{4, 33, 70});
}

// ---- vectorized ----------------------------------------------------------------------------------------------------

enum Tiles : int { kLarge, kMedium, kSmall };        // the level of a plan
constexpr Tiles kAlignedTiles[] = {kSmall, kLarge};  // there is none between

// Large tiles are for problems that fill the device: any fills one without multiprocessors, none of these one with a
// million. Medium tiles are for those in between.
std::optional<Plan> vectorized_plan(const Problem& problem, Tiles tiles) {
  DeviceFacts facts = current_device_facts();
  facts.sm_count = tiles == kLarge ? 0 : 1 << 20;
  auto plan = transposition::select(problem, facts, Algorithm::kVectorized);
  for (facts.sm_count = 1; tiles == kMedium && facts.sm_count < 1000; ++facts.sm_count) {
    plan = transposition::select(problem, facts, Algorithm::kVectorized);
    if (!plan || plan->level == tiles) break;
  }
  return plan;
}

// Runs vectorized, by the expected method where one is named.
ExecuteTranspose on_vectorized(Tiles tiles, std::optional<Method> expected = std::nullopt) {
  return [=](TransposeData& data) {
    Problem problem = data.problem();
    const auto first = static_cast<std::size_t>(data.in.offset_bytes());
    const DeviceMemory in(data.in.storage, first), out(data.out.storage);
    problem.in = in.at(data.in.offset_bytes());
    problem.out = out.at(data.out.offset_bytes());
    const auto plan = vectorized_plan(problem, tiles);
    ASSERT_TRUE(plan) << to_string(problem);
    if (expected) {
      ASSERT_STREQ(method_name(plan->method), method_name(*expected)) << to_string(problem);
    }
    // 16-byte elements may take the small tile where the large one would be mostly empty.
    if (problem.element_size != 16 &&
        (plan->method == Method::kAligned || plan->method == Method::kStaged || plan->method == Method::kGather)) {
      ASSERT_EQ(plan->level, tiles) << to_string(*plan) << " " << to_string(problem);
    }
    PMPP_ASSERT_CUDA(transposition::launch(*plan, problem, nullptr, nullptr)) << to_string(problem);
    PMPP_ASSERT_CUDA(cudaDeviceSynchronize()) << to_string(*plan) << " " << to_string(problem);
    out.read(data.out.storage);
  };
}

// The smallest pitch above `width` whose rows begin `residue` bytes further behind a boundary than the row before.
// Above, since rows that follow one another without a gap may be taken for a narrow strip. Residue 0 is that of whole
// sectors, which the aligned kernel asks for where elements have 8 bytes.
std::int64_t pitch_with_residue(std::int64_t width, int residue, int element_size) {
  std::int64_t pitch = width + 1;
  while (pitch * element_size % (residue == 0 ? 32 : 16) != residue) ++pitch;
  return pitch;
}

bool on_boundary(std::int64_t elements, int element_size) { return elements * element_size % 16 == 0; }

// A transpose at these residues: of the bases, and of the pitches.
PlacedTranspose tile_case(int size, std::int64_t m, std::int64_t n, int in_base, int in_pitch, int out_base,
                          int out_pitch, std::int64_t gap) {
  PlacedTranspose spec{size, m, n, 2};
  spec.in = {.residue = in_base, .pitch = pitch_with_residue(n, in_pitch, size), .gap = gap};
  spec.out = {.residue = out_base, .pitch = pitch_with_residue(m, out_pitch, size), .gap = gap};
  return spec;
}

Method tile_method(const PlacedTranspose& spec, Tiles tiles) {
  const int size = spec.element_size;
  const bool aligned = spec.in.residue == 0 && spec.out.residue == 0 && on_boundary(spec.m, size) &&
                       on_boundary(spec.n, size) && on_boundary(spec.in.pitch, size) &&
                       on_boundary(spec.out.pitch, size) && on_boundary(spec.in.gap, size);
  // Rows of 8 bytes that start in the middle of sectors are gathered, if there are enough of them.
  const auto halves = [&](const auto& side) { return (side.pitch * size % 32 | side.gap * size % 32) != 0; };
  const bool gathered = size == 8 && tiles == kLarge && (halves(spec.in) || halves(spec.out));
  return aligned && !gathered ? Method::kAligned : size == 1 ? Method::kStaged : Method::kGather;
}

// As many matrices as some device takes medium tiles for, whatever their size.
std::int64_t batch_for(Tiles tiles) { return tiles == kMedium ? 4 : 2; }

void check_tile(PlacedTranspose spec, Tiles tiles, bool guarded) {
  spec.guarded = guarded;
  spec.batch = batch_for(tiles);
  check(on_vectorized(tiles, tile_method(spec, tiles)), TransposeData(spec));
}

// Elements along a tile of a method: those of source rows, those of destination rows.
std::pair<std::int64_t, std::int64_t> tile_sides(int size, Tiles tiles, bool aligned) {
  const transposition::TileShape shape = aligned || size == 16 ? transposition::aligned_tile(size, tiles)
                                         : size == 1           ? transposition::staged_tile(tiles, false)
                                                               : transposition::gather_tile(size, tiles);
  return {shape.source_bytes / size, shape.dest_bytes / size};
}

class CudaVectorized : public NeedsCuda<::testing::TestWithParam<int>> {
 protected:
  int size() const { return GetParam(); }
  std::vector<Tiles> all_tiles() const {
    return size() == 16 ? std::vector<Tiles>{kSmall, kLarge} : std::vector<Tiles>{kSmall, kMedium, kLarge};
  }
};

std::string name_of_size(const ::testing::TestParamInfo<int>& info) { return std::to_string(info.param) + "_bytes"; }

INSTANTIATE_TEST_SUITE_P(All, CudaVectorized, ::testing::ValuesIn(kElementSizes), name_of_size);

TEST_P(CudaVectorized, AlignedTiles) {
  const int chunk = 16 / size();
  for (const Tiles tiles : kAlignedTiles) {
    const auto [cols, rows] = tile_sides(size(), tiles, true);
    int count = 0;
    for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{rows, cols},
                               {rows - chunk, cols + chunk},
                               {rows + chunk, cols - chunk}}) {
      check_tile(tile_case(size(), m, n, 0, 0, 0, 0, 2 * chunk), tiles, count++ % 2 == 1);
    }
  }
}

TEST_P(CudaVectorized, TilesAtEveryResidue) {
  for (const Tiles tiles : all_tiles()) {
    const auto [cols, rows] = tile_sides(size(), tiles, false);
    int count = 0;
    for (int residue = 0; residue < 16; residue += size(), ++count) {
      // Base and pitch of both sides go through all residues, at different paces.
      check_tile(tile_case(size(), rows - 1 + count % 3, cols + 1 - count / 3 % 3, residue, 3 * residue % 16,
                           5 * residue % 16, (7 * residue + size()) % 16, count % 4),
                 tiles, count % 2 == 1);
    }
  }
}

TEST_P(CudaVectorized, NarrowStrips) {
  int count = 0;
  for (const std::int64_t side : {2, 3, 8, 17, 33, 64, 160}) {
    for (const Tiles tiles : kAlignedTiles) {
      const int residue = count * size() % 16;
      PlacedTranspose few_columns{size(), 403 - count, side, 2};
      few_columns.in = {.residue = residue, .gap = count % 3};
      few_columns.out = {.residue = 3 * residue % 16, .pitch = 404 + count % 5, .gap = count % 2};
      few_columns.guarded = count % 2 == 1;
      PlacedTranspose few_rows{size(), side, 403 - count, 2};
      few_rows.in = {.residue = residue, .pitch = 404 + count % 5, .gap = count % 2};
      few_rows.out = {.residue = 3 * residue % 16, .gap = count % 3};
      few_rows.guarded = count % 2 == 1;
      const bool narrow = side * size() <= 256;
      check(on_vectorized(tiles, narrow ? std::optional(Method::kNarrowSource) : std::nullopt),
            TransposeData(few_columns));
      check(on_vectorized(tiles, narrow ? std::optional(Method::kNarrowDest) : std::nullopt), TransposeData(few_rows));
      ++count;
    }
  }
}

TEST_P(CudaVectorized, CopiesOfTransposedViews) {
  int count = 0;
  // From a few chunks a row to rows longer than what a block has in flight.
  for (const std::int64_t bytes : {48, 272, 4096 + 16, 16384 + 48}) {
    const std::int64_t m = bytes / size() - count % 2;
    for (const std::int64_t n : {1, 3, 67}) {
      const int residue = count * size() % 16;
      PlacedTranspose spec{size(), m, n, 2};
      spec.in = {.residue = residue, .pitch = m + count % 3, .gap = count % 4, .transposed = true};
      spec.out = {.residue = 5 * residue % 16, .pitch = m + 1 + count % 2, .gap = count % 3};
      spec.guarded = count % 2 == 1;
      check(on_vectorized(kSmall, Method::kCopy), TransposeData(spec));
      ++count;
    }
  }
  PlacedTranspose contiguous{size(), 77, 31, 3};
  contiguous.in.transposed = true;
  contiguous.guarded = false;
  check(on_vectorized(kSmall, Method::kDriverCopy), TransposeData(contiguous));
}

// Everything, thousands of cases: the sanitizers' steps leave these out.
class CudaVectorizedExhaustive : public CudaVectorized {
 protected:
  // Every base and pitch of one side while the other is on boundaries, at every pair of a tile's edges.
  void check_residues_of_one_side(bool input) const {
    for (const Tiles tiles : all_tiles()) {
      const auto [cols, rows] = tile_sides(size(), tiles, false);
      int count = 0;
      for (int base = 0; base < 16; base += size()) {
        for (int pitch = 0; pitch < 16; pitch += size()) {
          for (int edges = 0; edges < 9; ++edges, ++count) {
            const std::int64_t m = rows - 1 + edges % 3, n = cols - 1 + edges / 3;
            const PlacedTranspose spec =
                input ? tile_case(size(), m, n, base, pitch, 0, 0, 0) : tile_case(size(), m, n, 0, 0, base, pitch, 0);
            if (tiles == kMedium && tile_method(spec, tiles) == Method::kAligned) continue;  // there is no such tile
            check_tile(spec, tiles, count % 2 == 1);
          }
        }
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, CudaVectorizedExhaustive, ::testing::ValuesIn(kElementSizes), name_of_size);

TEST_P(CudaVectorizedExhaustive, TileEdgesAtEveryResidueOfTheInput) { check_residues_of_one_side(true); }

TEST_P(CudaVectorizedExhaustive, TileEdgesAtEveryResidueOfTheOutput) { check_residues_of_one_side(false); }

// Both sides at once, at every pair of edges, for one tile and for two and three of them.
TEST_P(CudaVectorizedExhaustive, TileEdgesAtResiduesOfBothSides) {
  for (const Tiles tiles : all_tiles()) {
    const auto [cols, rows] = tile_sides(size(), tiles, false);
    int count = 0;
    for (int residue = 0; residue < 16; residue += size()) {
      for (std::int64_t row_edge = -1; row_edge <= 1; ++row_edge) {
        for (std::int64_t col_edge = -1; col_edge <= 1; ++col_edge, ++count) {
          const std::int64_t m = (1 + count % 2) * rows + row_edge;
          const std::int64_t n = (1 + count / 2 % 3) * cols + col_edge;
          check_tile(tile_case(size(), m, n, residue, 3 * residue % 16, (5 * residue + size() * (count % 4)) % 16,
                               (7 * residue + size()) % 16, count % 5),
                     tiles, count % 2 == 1);
        }
      }
    }
  }
}

// Destination rows all begin halfway between boundaries of 32 bytes, a whole number of tiles long.
TEST_P(CudaVectorizedExhaustive, DestinationsHalfwayBetweenSectors) {
  for (const Tiles tiles : all_tiles()) {
    const auto [cols, rows] = tile_sides(size(), tiles, false);
    for (const std::int64_t past : {-1, 0, 1}) {
      PlacedTranspose spec{size(), 3 * rows + past, 2 * cols + 1, batch_for(tiles)};
      spec.in.pitch = 2 * cols + 2;
      spec.out.residue = 16;
      spec.out.pitch = round_up(spec.m + 1, 32 / size() * 2);
      check(on_vectorized(tiles, size() == 16  ? Method::kAligned
                                 : size() == 1 ? Method::kStaged
                                               : Method::kGather),
            TransposeData(spec));
    }
  }
}

TEST_P(CudaVectorizedExhaustive, AlignedTileEdges) {
  const int chunk = 16 / size();
  for (const Tiles tiles : kAlignedTiles) {
    const auto [cols, rows] = tile_sides(size(), tiles, true);
    int count = 0;
    for (int times = 1; times <= 3; ++times) {
      for (int row_edge = -1; row_edge <= 1; ++row_edge) {
        for (int col_edge = -1; col_edge <= 1; ++col_edge, ++count) {
          check_tile(tile_case(size(), times * rows + row_edge * chunk, (4 - times) * cols + col_edge * chunk, 0, 0, 0,
                               0, count % 3 * chunk),
                     tiles, count % 2 == 1);
        }
      }
    }
  }
}

// As many matrices as fill the device that is there, so that the large tile is what it takes by itself.
TEST_P(CudaVectorizedExhaustive, BatchesThatFillTheDevice) {
  const auto [cols, rows] = tile_sides(size(), kLarge, false);
  PlacedTranspose spec{size(), 2 * rows, 2 * cols, 4 * current_device_facts().sm_count};
  spec.in = {.pitch = 2 * cols + 1, .gap = 1};
  spec.out = {.pitch = 2 * rows + 1, .gap = 3};
  const auto execute = [](TransposeData& data) {
    Problem problem = data.problem();
    const DeviceMemory in(data.in.storage), out(data.out.storage);
    problem.in = in.at(data.in.offset_bytes());
    problem.out = out.at(data.out.offset_bytes());
    const auto plan = transposition::select(problem, current_device_facts(), Algorithm::kAuto);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->algorithm, Algorithm::kVectorized);
    EXPECT_EQ(plan->level, kLarge) << to_string(*plan);
    PMPP_ASSERT_CUDA(transposition::launch(*plan, problem, nullptr, nullptr)) << to_string(problem);
    PMPP_ASSERT_CUDA(cudaDeviceSynchronize());
    out.read(data.out.storage);
  };
  check(ExecuteTranspose(execute), TransposeData(spec));
}

TEST_P(CudaVectorizedExhaustive, NarrowStripsOfEveryWidth) {
  int count = 0;
  for (std::int64_t side = 2; side <= 160; side += side < 20 ? 1 : side < 70 ? 3 : 6) {
    for (int residue = 0; residue < 16; residue += size() == 1 ? 3 : size()) {
      for (const std::int64_t length : {std::int64_t{1}, std::int64_t{129}, std::int64_t{1001 + count % 37}}) {
        const Tiles tiles = count % 2 == 0 ? kSmall : kLarge;
        const bool narrow = side * size() <= 256 && length > 160;
        PlacedTranspose spec{size(), length, side, 1 + count % 3};
        spec.in = {.residue = residue, .gap = count % 5};
        spec.out = {.residue = (residue * 3 + count * size()) % 16, .pitch = length + count % 7, .gap = count % 3};
        spec.guarded = count % 2 == 1;
        check(on_vectorized(tiles, narrow ? std::optional(Method::kNarrowSource) : std::nullopt), TransposeData(spec));
        std::swap(spec.m, spec.n);
        spec.in = {.residue = residue, .pitch = length + count % 7, .gap = count % 3};
        spec.out = {.residue = (residue * 3 + count * size()) % 16, .gap = count % 5};
        check(on_vectorized(tiles, narrow ? std::optional(Method::kNarrowDest) : std::nullopt), TransposeData(spec));
        ++count;
      }
    }
  }
}

TEST_P(CudaVectorizedExhaustive, CopiesAtEveryResidue) {
  int count = 0;
  for (int in = 0; in < 16; in += size()) {
    for (int out = 0; out < 16; out += size()) {
      for (const std::int64_t bytes : {16, 32, 80, 512, 1040, 4112, 16384 - 64, 16384 + 32, 65536 + 16}) {
        const std::int64_t m = bytes / size() + count % 3 - 1;
        if (m < 2) continue;  // a single row is one run
        PlacedTranspose spec{size(), m, 1 + count % 23, 1 + count % 2};
        spec.in = {.residue = in, .pitch = m + count % 5, .gap = count % 3, .transposed = true};
        spec.out = {.residue = out, .pitch = m + 1 + count % 4, .gap = count % 7};
        spec.guarded = count % 2 == 1;
        // One row alone has no pitch.
        check(on_vectorized(kSmall, spec.n > 1 ? std::optional(Method::kCopy) : std::nullopt), TransposeData(spec));
        ++count;
      }
    }
  }
}

class CudaPack : public NeedsCuda<::testing::TestWithParam<int>> {
 protected:
  int size() const { return GetParam(); }

  // Packs `in` with rows of `pitch` elements, and compares every byte of the workspace and of the guards around it.
  void check_pack(const Buffer& in, std::int64_t pitch, int guard) const {
    const Strided& view = in.view;
    const Strided packed{view.rows, pitch, view.batch, pitch, 1, view.rows * pitch};
    Buffer out(size(), packed, guard, Buffer::kGuard);
    Buffer expected = out;
    expected.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
      const auto bytes = static_cast<std::size_t>(size());
      if (c < view.cols) {
        std::memcpy(expected.address(b, r, c), in.address(b, r, c), bytes);
      } else {
        std::memset(expected.address(b, r, c), 0, bytes);
      }
    });
    const DeviceMemory in_memory(in.storage), out_memory(out.storage);
    transposition::Pack pack;
    pack.element_size = size();
    pack.rows = view.rows, pack.cols = view.cols, pack.batch = view.batch;
    pack.in = in_memory.at(in.offset_bytes());
    pack.in_row_stride = view.row_stride, pack.in_col_stride = view.col_stride;
    pack.in_batch_stride = view.batch_stride;
    pack.out = out_memory.at(out.offset_bytes());
    pack.pitch = pitch;
    PMPP_ASSERT_CUDA(transposition::pack(pack, current_device_facts(), nullptr));
    PMPP_ASSERT_CUDA(cudaDeviceSynchronize());
    out_memory.read(out.storage);
    EXPECT_EQ(out.storage, expected.storage) << view.rows << " x " << view.cols << " x " << view.batch << ", strides ("
                                             << view.row_stride << ", " << view.col_stride << "), pitch " << pitch;
  }
};

INSTANTIATE_TEST_SUITE_P(All, CudaPack, ::testing::ValuesIn(kElementSizes),
                         [](const auto& info) { return std::to_string(info.param) + "_bytes"; });

TEST_P(CudaPack, AnyStridesIntoRowsOfZeroPaddedPitch) {
  std::mt19937_64 random(7);
  int count = 0;
  for (const Layout layout : {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kSlicedColumnMajor,
                              Layout::kReversed, Layout::kSameRow, Layout::kSameColumn, Layout::kSameElement}) {
    for (const auto& [rows, cols] : {std::pair<int, int>{1, 1}, {1, 37}, {37, 1}, {67, 33}, {130, 71}}) {
      for (const BatchLayout batches : {BatchLayout::kPacked, BatchLayout::kShared}) {
        const std::int64_t batch = 1 + count % 3;
        Buffer in(size(), strided(layout, rows, cols, batch, batches), count % 4, Buffer::kPoison);
        for (std::byte& byte : in.storage) byte = static_cast<std::byte>(random());
        // What tensor-core kernels ask for: whole chunks; and pitches with more, and with no padding.
        const std::int64_t chunk = std::max(16 / size(), 1);
        const std::int64_t pitches[] = {round_up(cols, chunk), round_up(cols, chunk) + chunk, cols};
        check_pack(in, pitches[count % 3], count % 2 * static_cast<int>(chunk));
        ++count;
      }
    }
  }
}

TEST_P(CudaPack, EmptyMatricesAndTooSmallPitches) {
  check_pack(Buffer(size(), strided(Layout::kRowMajor, 0, 5), 1, Buffer::kPoison), 16, 2);
  check_pack(Buffer(size(), strided(Layout::kRowMajor, 4, 3, 0), 1, Buffer::kPoison), 16, 2);
  // No columns: all of the workspace is padding.
  check_pack(Buffer(size(), strided(Layout::kRowMajor, 4, 0), 1, Buffer::kPoison), 16, 2);
  transposition::Pack pack;
  pack.element_size = size();
  pack.rows = 2, pack.cols = 5, pack.pitch = 4;
  EXPECT_EQ(transposition::pack(pack, current_device_facts(), nullptr), cudaErrorInvalidPitchValue);
}

class CudaTransposeErrors : public NeedsCuda<::testing::Test> {};

// Refused before anything reaches CUDA, and the next launch works.
TEST_F(CudaTransposeErrors, WrongPlansAndElementSizesAreRefused) {
  TransposeData data(TransposeCase{4, 5, 6});
  Problem problem = data.problem();
  const auto cpu_plan = transposition::select(problem, cpu_facts(1), Algorithm::kNaive);
  const auto cuda_plan = transposition::select(problem, current_device_facts(), Algorithm::kNaive);
  ASSERT_TRUE(cpu_plan && cuda_plan);
  EXPECT_EQ(transposition::launch(*cpu_plan, problem, nullptr, nullptr), cudaErrorInvalidValue);
  problem.element_size = 3;
  EXPECT_EQ(transposition::launch(*cuda_plan, problem, nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  check(on_cuda(Algorithm::kNaive), TransposeCase{4, 5, 6});
}

}  // namespace
}  // namespace pmpp::test
