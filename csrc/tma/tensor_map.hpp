// Tensor maps: what the tensor memory accelerator of sm_90 and later needs to know of a matrix.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "csrc/common/dtype.hpp"

namespace pmpp::tma {

// `batch` matrices of `lines` lines of `length` contiguous elements, moved in boxes of box_length x box_lines: in the
// 128-byte swizzle, where lines of a box are 128 bytes, or line behind line, in multiples of 16 bytes. Float32 is
// rounded to the nearest tf32 on the way to shared memory.
// Address and pitches are multiples of 16 bytes, pitches below 2^40 bytes, sizes up to 2^31 - 1. Elements outside the
// matrix are read as zeros and not written.
struct MatrixMap {
  DType dtype = DType::kFloat16;  // kFloat16, kBFloat16 or kFloat32
  const void* data = nullptr;
  std::int64_t length = 0, lines = 0, batch = 1;
  std::int64_t pitch = 0, batch_pitch = 0;  // elements
  int box_length = 64, box_lines = 64;
  bool is_swizzled = true;

  bool operator==(const MatrixMap&) const = default;
};

// One line, for messages.
std::string to_string(const MatrixMap& matrix);

// Writes `map`, from those that this thread has encoded last where the same is among them. cudaErrorNotSupported where
// the driver has no tensor maps, cudaErrorInvalidValue for a matrix that it refuses. Calls the driver but no device.
cudaError_t encode(CUtensorMap* map, const MatrixMap& matrix);

}  // namespace pmpp::tma
