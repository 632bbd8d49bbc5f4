#include <algorithm>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/repack.cuh"

namespace pmpp::matmul {
namespace {

constexpr std::int64_t kMaxChunks = (std::int64_t{1} << 31) - 1;
constexpr int kBlockChunks = kRepackThreads * kRepackInFlight;

cudaError_t launch_jobs(const RepackArguments& arguments, std::int64_t blocks, cudaStream_t stream) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kRepackThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, tiled_matmul_repack_kernel, arguments);
}

// Lines [first, first + lines) of matrices [matrix, matrix + batch).
RepackJob make_job(const Repack& r, std::int64_t matrix, std::int64_t batch, std::int64_t first, std::int64_t lines) {
  const std::int64_t line_chunks = ceil_div(r.length, kRepackChunk);
  RepackJob job = {};
  job.in = static_cast<const std::uint16_t*>(r.in) + matrix * r.in_batch_stride + first * r.in_pitch;
  job.out = static_cast<std::uint16_t*>(r.out) + matrix * r.out_batch_stride + first * r.out_pitch;
  job.in_pitch = r.in_pitch;
  job.in_batch = r.in_batch_stride;
  job.out_pitch = r.out_pitch;
  job.out_batch = r.out_batch_stride;
  job.length = static_cast<std::int32_t>(r.length);
  job.chunks = static_cast<std::uint32_t>(line_chunks * lines * batch);
  job.line_chunks = Divisor::of(static_cast<std::uint32_t>(line_chunks));
  job.lines = Divisor::of(static_cast<std::uint32_t>(lines));
  // Strides may be negative.
  const std::int64_t line_reach = (lines - 1) * r.in_pitch, batch_reach = (batch - 1) * r.in_batch_stride;
  job.begin = reinterpret_cast<std::uintptr_t>(job.in + std::min<std::int64_t>(line_reach, 0) +
                                               std::min<std::int64_t>(batch_reach, 0));
  job.end = reinterpret_cast<std::uintptr_t>(job.in + std::max<std::int64_t>(line_reach, 0) +
                                             std::max<std::int64_t>(batch_reach, 0) + r.length);
  return job;
}

}  // namespace

cudaError_t launch_repack(const Repack* repacks, int count, cudaStream_t stream) {
  if (count < 1 || count > kMaxRepacks) return cudaErrorInvalidValue;
  const auto chunks = [](const Repack& r) { return ceil_div(r.length, kRepackChunk); };
  // Factor by factor, so that no product overflows.
  const auto is_small = [&](const Repack& r) {
    return chunks(r) * r.lines <= kMaxChunks && chunks(r) * r.lines * r.batch <= kMaxChunks;
  };
  if (std::all_of(repacks, repacks + count, is_small)) {
    RepackArguments arguments = {};
    std::int64_t blocks = 0;
    for (int i = 0; i < count; ++i) {
      arguments.job[i] = make_job(repacks[i], 0, repacks[i].batch, 0, repacks[i].lines);
      blocks += ceil_div(arguments.job[i].chunks, kBlockChunks);
      if (i == 0) arguments.first_blocks = static_cast<std::uint32_t>(blocks);
    }
    return launch_jobs(arguments, blocks, stream);
  }
  for (int i = 0; i < count; ++i) {
    const Repack& r = repacks[i];
    const std::int64_t slab = std::max<std::int64_t>(kMaxChunks / chunks(r), 1);
    for (std::int64_t matrix = 0; matrix < r.batch; ++matrix) {
      for (std::int64_t first = 0; first < r.lines; first += slab) {
        RepackArguments arguments = {};
        arguments.job[0] = make_job(r, matrix, 1, first, std::min(slab, r.lines - first));
        const std::int64_t blocks = ceil_div(arguments.job[0].chunks, kBlockChunks);
        arguments.first_blocks = static_cast<std::uint32_t>(blocks);
        if (const cudaError_t error = launch_jobs(arguments, blocks, stream); error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

}  // namespace pmpp::matmul
