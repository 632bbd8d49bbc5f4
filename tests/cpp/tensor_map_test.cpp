#include "csrc/tma/tensor_map.hpp"

#include <gtest/gtest.h>

namespace pmpp::tma {
namespace {

TEST(TensorMap, ItsDescriptionIsOneLineWithEverySize) {
  MatrixMap matrix;
  matrix.dtype = DType::kBFloat16;
  matrix.data = reinterpret_cast<const void*>(0x4560);
  matrix.length = 101, matrix.lines = 202, matrix.batch = 3;
  matrix.pitch = 104, matrix.batch_pitch = 21008;
  matrix.box_lines = 128;
  EXPECT_EQ(to_string(matrix), "tensor map of bfloat16 at 0x4560: 3 x 202 x 101, pitches 21008 and 104, box 128 x 64");
  matrix.is_swizzled = false;
  EXPECT_EQ(to_string(matrix),
            "tensor map of bfloat16 at 0x4560: 3 x 202 x 101, pitches 21008 and 104, box 128 x 64, not swizzled");
}

// Maps are kept by their description: it has to tell all of them apart.
TEST(TensorMap, ADescriptionDiffersInAnyField) {
  const MatrixMap matrix;
  EXPECT_TRUE(matrix == MatrixMap{});
  const auto differs = [&](auto MatrixMap::*field, auto value) {
    MatrixMap other = matrix;
    other.*field = value;
    return !(other == matrix);
  };
  EXPECT_TRUE(differs(&MatrixMap::dtype, DType::kBFloat16));
  EXPECT_TRUE(differs(&MatrixMap::data, static_cast<const void*>(&matrix)));
  EXPECT_TRUE(differs(&MatrixMap::length, 1));
  EXPECT_TRUE(differs(&MatrixMap::lines, 1));
  EXPECT_TRUE(differs(&MatrixMap::batch, 2));
  EXPECT_TRUE(differs(&MatrixMap::pitch, 8));
  EXPECT_TRUE(differs(&MatrixMap::batch_pitch, 8));
  EXPECT_TRUE(differs(&MatrixMap::box_length, 32));
  EXPECT_TRUE(differs(&MatrixMap::box_lines, 128));
  EXPECT_TRUE(differs(&MatrixMap::is_swizzled, false));
}

}  // namespace
}  // namespace pmpp::tma
