// Dispatch key CPU.
#include <torch/library.h>

#include "ops/batched_matmul.h"
#include "ops/padded_transpose.h"
#include "ops/tiled_matmul.h"

namespace pmpp::ops {
namespace {

at::Tensor tiled_matmul_cpu(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  return tiled_matmul(kMatmulCpu, a, b, algorithm);
}

at::Tensor& tiled_matmul_out_cpu(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm,
                                 at::Tensor& out) {
  return tiled_matmul_out(kMatmulCpu, a, b, algorithm, out);
}

at::Tensor padded_transpose_cpu(const at::Tensor& x, c10::string_view algorithm) {
  return padded_transpose(kTransposeCpu, x, algorithm);
}

at::Tensor& padded_transpose_out_cpu(const at::Tensor& x, c10::string_view algorithm, at::Tensor& out) {
  return padded_transpose_out(kTransposeCpu, x, algorithm, out);
}

at::Tensor batched_matmul_cpu(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  return batched_matmul(kMatmulCpu, a, b, algorithm);
}

at::Tensor batched_transpose_cpu(const at::Tensor& x, c10::string_view algorithm) {
  return batched_transpose(kTransposeCpu, x, algorithm);
}

}  // namespace

TORCH_LIBRARY_IMPL(pmpp, CPU, m) {
  m.impl("tiled_matmul", tiled_matmul_cpu);
  m.impl("tiled_matmul.out", tiled_matmul_out_cpu);
  m.impl("padded_transpose", padded_transpose_cpu);
  m.impl("padded_transpose.out", padded_transpose_out_cpu);
  m.impl("_batched_matmul", batched_matmul_cpu);
  m.impl("_batched_transpose", batched_transpose_cpu);
}

}  // namespace pmpp::ops
