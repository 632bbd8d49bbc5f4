#include "csrc/padded_transpose/pack.hpp"

#include <cstddef>
#include <optional>

#include "csrc/padded_transpose/launch.hpp"
#include "csrc/padded_transpose/problem.hpp"
#include "csrc/padded_transpose/select.hpp"

namespace pmpp::transposition {

cudaError_t pack(const Pack& pack, const DeviceFacts& device, cudaStream_t stream) {
  if (pack.pitch < pack.cols) return cudaErrorInvalidPitchValue;
  // A transpose of the transposed input: its rows are the input's columns.
  Problem problem;
  problem.element_size = pack.element_size;
  problem.m = pack.cols;
  problem.n = pack.rows;
  problem.batch = pack.batch;
  problem.in = pack.in;
  problem.in_row_stride = pack.in_col_stride;
  problem.in_col_stride = pack.in_row_stride;
  problem.in_batch_stride = pack.in_batch_stride;
  problem.out = pack.out;
  problem.out_row_stride = pack.pitch;
  problem.out_col_stride = 1;
  problem.out_batch_stride = pack.rows * pack.pitch;
  const std::optional<Plan> plan = select(problem, device, Algorithm::kAuto);
  if (!plan.has_value()) return cudaErrorInvalidValue;
  if (const cudaError_t error = launch(*plan, problem, nullptr, stream); error != cudaSuccess) return error;

  const std::int64_t lines = pack.rows * pack.batch;
  if (!pack.is_padding_zeroed || pack.pitch == pack.cols || lines == 0) return cudaSuccess;
  const auto size = static_cast<std::size_t>(pack.element_size);
  return cudaMemset2DAsync(static_cast<std::byte*>(pack.out) + pack.cols * pack.element_size, pack.pitch * size, 0,
                           (pack.pitch - pack.cols) * size, static_cast<std::size_t>(lines), stream);
}

}  // namespace pmpp::transposition
