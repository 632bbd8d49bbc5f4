// Products of batches of matrices: what vmap makes of tiled_matmul. Each call is one launch.
#pragma once

#include "ops/tiled_matmul.h"

namespace pmpp::ops {

// a (batch, m, k) of any strides, also 0 along the batch, times b (batch, k, n): a new row-major (batch, m, n) tensor.
// Dtypes, algorithms and errors are those of tiled_matmul.
at::Tensor batched_matmul(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                          c10::string_view algorithm);

// Shapes and dtypes alone; sizes may be symbolic.
at::Tensor batched_matmul_meta(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm);

}  // namespace pmpp::ops
