#include "ops/pmpp.h"

#include "ops/operators.h"

namespace pmpp {

at::Tensor tiled_matmul(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  return ops::matmul_operator().call(a, b, algorithm);
}

at::Tensor& tiled_matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  return ops::matmul_out_operator().call(a, b, algorithm, out);
}

at::Tensor padded_transpose(const at::Tensor& x, c10::string_view algorithm) {
  return ops::transpose_operator().call(x, algorithm);
}

at::Tensor& padded_transpose_out(at::Tensor& out, const at::Tensor& x, c10::string_view algorithm) {
  return ops::transpose_out_operator().call(x, algorithm, out);
}

at::Tensor transpose(const at::Tensor& x, c10::string_view algorithm) {
  if (x.dim() <= 2) {
    at::Tensor view = x.t();
    if (view.is_contiguous()) return view;
  }
  return padded_transpose(x, algorithm);
}

const char* version() { return PMPP_VERSION; }

}  // namespace pmpp
