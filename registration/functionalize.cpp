// Dispatch key Functionalize: inside a traced graph, writing to `out` becomes the functional operator followed by a
// replacement of out's value. PyTorch derives this for its own operators only; without it torch.compile refuses a
// custom operator that returns the argument it writes to.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "ops/operators.h"

namespace pmpp::ops {
namespace {

namespace functionalization = at::functionalization::impl;

at::Tensor unwrap(const at::Tensor& x) {
  if (!functionalization::isFunctionalTensor(x)) return x;
  functionalization::sync(x);
  return functionalization::from_functional_tensor(x);
}

at::Tensor& replace(const char* op, at::Tensor& out, const at::Tensor& value) {
  TORCH_CHECK(functionalization::isFunctionalTensor(out), op,
              ": out is no part of the traced graph that the operands belong to");
  TORCH_CHECK(out.scalar_type() == value.scalar_type(), op, ": expected out to have dtype ", value.scalar_type(),
              ", but got ", out.scalar_type());
  TORCH_CHECK(out.device() == value.device(), op,
              ": expected all tensors to be on the same device, but the result is on ", value.device(),
              " and out is on ", out.device());
  at::native::resize_output_symint(out, value.sym_sizes());
  functionalization::replace_(out, value);
  functionalization::commit_update(out);
  functionalization::sync(out);
  return out;
}

at::Tensor& tiled_matmul_out_functional(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm,
                                        at::Tensor& out) {
  const at::Tensor a_value = unwrap(a);
  const at::Tensor b_value = unwrap(b);
  at::Tensor value;
  {
    at::AutoDispatchSkipFunctionalize guard;
    value = matmul_operator().call(a_value, b_value, algorithm);
  }
  return replace("tiled_matmul", out, value);
}

at::Tensor& padded_transpose_out_functional(const at::Tensor& x, c10::string_view algorithm, at::Tensor& out) {
  const at::Tensor x_value = unwrap(x);
  at::Tensor value;
  {
    at::AutoDispatchSkipFunctionalize guard;
    value = transpose_operator().call(x_value, algorithm);
  }
  return replace("padded_transpose", out, value);
}

}  // namespace

TORCH_LIBRARY_IMPL(pmpp, Functionalize, m) {
  m.impl("tiled_matmul.out", tiled_matmul_out_functional);
  m.impl("padded_transpose.out", padded_transpose_out_functional);
}

}  // namespace pmpp::ops
