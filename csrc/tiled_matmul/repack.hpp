// Operands that TMA cannot address, copied into workspaces that it can: lines at a pitch of whole 16 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pmpp::matmul {

// out[b][line][i] = in[b][line][i] for i < length. Elements of 2 bytes, those of a line next to each other; pitches and
// strides in elements. `out` is aligned to 16 bytes, out_pitch is a multiple of 8 elements and at least `length`; what
// lies in `out` between `length` and the next multiple of 8 is undefined afterwards.
struct Repack {
  std::int64_t length = 0, lines = 0, batch = 1;
  const void* in = nullptr;
  std::int64_t in_pitch = 0, in_batch_stride = 0;
  void* out = nullptr;
  std::int64_t out_pitch = 0, out_batch_stride = 0;
};

inline constexpr int kMaxRepacks = 2;

// Enqueues `count` copies, at most kMaxRepacks, together (several launches only beyond 2^31 chunks of 16 bytes).
// Reads nothing but the operands' own elements and what lies between them. Never synchronises or allocates.
cudaError_t launch_repack(const Repack* repacks, int count, cudaStream_t stream);

}  // namespace pmpp::matmul
