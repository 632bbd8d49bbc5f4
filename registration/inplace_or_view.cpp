// Dispatch key ADInplaceOrView: writing to `out` advances its version, so that autograd notices when a tensor saved for
// a backward pass was overwritten.
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/library.h>

#include "ops/operators.h"

namespace pmpp::ops {
namespace {

at::Tensor& tiled_matmul_out_versioned(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b,
                                       c10::string_view algorithm, at::Tensor& out) {
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    matmul_out_operator().redispatch(keys & c10::after_ADInplaceOrView_keyset, a, b, algorithm, out);
  }
  torch::autograd::increment_version(out);
  return out;
}

at::Tensor& padded_transpose_out_versioned(c10::DispatchKeySet keys, const at::Tensor& x, c10::string_view algorithm,
                                           at::Tensor& out) {
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    transpose_out_operator().redispatch(keys & c10::after_ADInplaceOrView_keyset, x, algorithm, out);
  }
  torch::autograd::increment_version(out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(pmpp, ADInplaceOrView, m) {
  m.impl("tiled_matmul.out", tiled_matmul_out_versioned);
  m.impl("padded_transpose.out", padded_transpose_out_versioned);
}

}  // namespace pmpp::ops
