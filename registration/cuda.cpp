// Dispatch key CUDA.
#include <torch/library.h>

#include "ops/batched_matmul.h"
#include "ops/padded_transpose.h"
#include "ops/tiled_matmul.h"

namespace pmpp::ops {
namespace {

at::Tensor tiled_matmul_cuda(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  return tiled_matmul(kMatmulCuda, a, b, algorithm);
}

at::Tensor& tiled_matmul_out_cuda(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm,
                                  at::Tensor& out) {
  return tiled_matmul_out(kMatmulCuda, a, b, algorithm, out);
}

at::Tensor padded_transpose_cuda(const at::Tensor& x, c10::string_view algorithm) {
  return padded_transpose(kTransposeCuda, x, algorithm);
}

at::Tensor& padded_transpose_out_cuda(const at::Tensor& x, c10::string_view algorithm, at::Tensor& out) {
  return padded_transpose_out(kTransposeCuda, x, algorithm, out);
}

at::Tensor batched_matmul_cuda(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  return batched_matmul(kMatmulCuda, a, b, algorithm);
}

at::Tensor batched_transpose_cuda(const at::Tensor& x, c10::string_view algorithm) {
  return batched_transpose(kTransposeCuda, x, algorithm);
}

}  // namespace

TORCH_LIBRARY_IMPL(pmpp, CUDA, m) {
  m.impl("tiled_matmul", tiled_matmul_cuda);
  m.impl("tiled_matmul.out", tiled_matmul_out_cuda);
  m.impl("padded_transpose", padded_transpose_cuda);
  m.impl("padded_transpose.out", padded_transpose_out_cuda);
  m.impl("_batched_matmul", batched_matmul_cuda);
  m.impl("_batched_transpose", batched_transpose_cuda);
}

}  // namespace pmpp::ops
