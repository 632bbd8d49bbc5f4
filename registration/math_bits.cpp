// Dispatch keys Conjugate and Negative, for out= alone: conj() and, for parts of complex tensors, the sign are bits of
// a view that kernels never see. PyTorch's fallback resolves such views into copies first, and with the copy goes the
// knowledge that `out` lies over the original. Here the original is compared before it is resolved.
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <initializer_list>

#include "ops/operators.h"
#include "ops/tensor_checks.h"

namespace pmpp::ops {
namespace {

using c10::DispatchKey;

template <DispatchKey key>
at::Tensor resolve(const at::Tensor& x) {
  if (!x.defined()) return x;
  return key == DispatchKey::Conjugate ? x.resolve_conj() : x.resolve_neg();
}

// Tensors of a traced graph have no memory to compare.
bool is_traced(c10::DispatchKeySet keys) {
  return keys.has(DispatchKey::Python) || keys.has(DispatchKey::Functionalize) ||
         keys.has_backend(c10::BackendComponent::MetaBit);
}

// Whether the result can go straight to `out` once the operands are resolved. Not when it is to be stored conjugated or
// negated, and not when prepare_out() would resize or refuse it.
bool writable_in_place(const at::Tensor& out, at::IntArrayRef shape, std::initializer_list<Named> inputs) {
  if (!out.defined() || out.is_conj() || out.is_neg() || out.sizes() != shape) return false;
  for (const Named& input : inputs) {
    if (input.tensor.device() != out.device() || share_memory(out, input.tensor)) return false;
  }
  return true;
}

// Gives `out` a value computed apart from it, after the checks that out= promises, made on the originals.
void assign(const char* op, c10::DispatchKeySet keys, at::Tensor& out, const at::Tensor& value,
            std::initializer_list<Named> inputs) {
  if (is_traced(keys)) {
    check_defined(op, {"out", out});
    at::native::resize_output_symint(out, value.sym_sizes());
  } else {
    prepare_out(op, out, value.sizes(), value.scalar_type(), inputs);
  }
  out.copy_(value);
}

template <DispatchKey key>
at::Tensor& tiled_matmul_out_resolved(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b,
                                      c10::string_view algorithm, at::Tensor& out) {
  const bool in_place = !is_traced(keys) && a.defined() && b.defined() && a.dim() == 2 && b.dim() == 2 &&
                        writable_in_place(out, {a.size(0), b.size(1)}, {{"a", a}, {"b", b}});
  if (in_place) {
    return matmul_out_operator().redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key),
                                            resolve<key>(a), resolve<key>(b), algorithm, out);
  }
  const at::Tensor value = matmul_operator().call(a, b, algorithm);
  assign("tiled_matmul", keys, out, value, {{"a", a}, {"b", b}});
  return out;
}

template <DispatchKey key>
at::Tensor& padded_transpose_out_resolved(c10::DispatchKeySet keys, const at::Tensor& x, c10::string_view algorithm,
                                          at::Tensor& out) {
  const bool in_place =
      !is_traced(keys) && x.defined() && x.dim() <= 2 && writable_in_place(out, x.t().sizes(), {{"x", x}});
  if (in_place) {
    return transpose_out_operator().redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key),
                                               resolve<key>(x), algorithm, out);
  }
  const at::Tensor value = transpose_operator().call(x, algorithm);
  assign("padded_transpose", keys, out, value, {{"x", x}});
  return out;
}

template <DispatchKey key>
void register_for(torch::Library& m) {
  m.impl("tiled_matmul.out", tiled_matmul_out_resolved<key>);
  m.impl("padded_transpose.out", padded_transpose_out_resolved<key>);
}

}  // namespace

TORCH_LIBRARY_IMPL(pmpp, Conjugate, m) { register_for<c10::DispatchKey::Conjugate>(m); }
TORCH_LIBRARY_IMPL(pmpp, Negative, m) { register_for<c10::DispatchKey::Negative>(m); }

}  // namespace pmpp::ops
