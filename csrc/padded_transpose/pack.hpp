// A matrix copied into a workspace in the form that tensor-core kernels can address: rows at a given pitch, whatever
// its own strides are, with zeros behind each row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "csrc/common/device_facts.hpp"

namespace pmpp::transposition {

// out[b][r][c] = in[b][r][c] for 0 <= c < cols and, if is_padding_zeroed, 0 for cols <= c < pitch. Strides and pitch
// are in elements; an input may have any strides, also of a transposed view. `out` has batch * rows * pitch elements,
// and starts at a multiple of their size, as `in` does; of 4 bytes and more, half their size is enough.
struct Pack {
  int element_size = 0;  // bytes: 1, 2, 4, 8 or 16
  std::int64_t rows = 0, cols = 0, batch = 1;
  const void* in = nullptr;
  std::int64_t in_row_stride = 0, in_col_stride = 0, in_batch_stride = 0;
  void* out = nullptr;
  std::int64_t pitch = 0;         // at least cols
  bool is_padding_zeroed = true;  // else the padding keeps what it holds
};

// Enqueues the copy on the stream of the current device, of which `device` tells the facts: one kernel or copy, and
// where there is padding to zero one memset; returns the launch's own error. Never synchronises or allocates.
cudaError_t pack(const Pack& pack, const DeviceFacts& device, cudaStream_t stream);

}  // namespace pmpp::transposition
