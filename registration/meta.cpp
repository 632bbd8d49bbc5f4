// Dispatch key Meta: shapes, dtypes and strides without data, also for fake tensors with symbolic sizes.
#include <torch/library.h>

#include "ops/batched_matmul.h"
#include "ops/padded_transpose.h"
#include "ops/tiled_matmul.h"

TORCH_LIBRARY_IMPL(pmpp, Meta, m) {
  m.impl("tiled_matmul", pmpp::ops::tiled_matmul_meta);
  m.impl("tiled_matmul.out", pmpp::ops::tiled_matmul_out_meta);
  m.impl("padded_transpose", pmpp::ops::padded_transpose_meta);
  m.impl("padded_transpose.out", pmpp::ops::padded_transpose_out_meta);
  m.impl("_batched_matmul", pmpp::ops::batched_matmul_meta);
  m.impl("_batched_transpose", pmpp::ops::batched_transpose_meta);
}
