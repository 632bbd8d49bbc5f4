// Dispatch keys Conjugate and Negative, for out= alone: conj() and, for parts of complex tensors, the sign are bits of
// a view that kernels never see. PyTorch's fallback resolves such views into copies first, and with the copy goes the
// knowledge that `out` lies over the original. Here the original is compared before it is resolved.
#include <ATen/FunctionalTensorWrapper.h>
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

// Whether x is an ordinary strided tensor; the dispatcher refuses others in its own words.
bool is_plain(const at::Tensor& x) { return !x.defined() || (x.layout() == at::kStrided && !x.is_nested()); }

// Whether x has memory that can be compared: not a meta tensor, nor one of a traced graph. A TorchDispatchMode or a
// subclass of Tensor over real memory changes nothing.
bool has_memory(const at::Tensor& x) {
  if (!x.defined() || !x.has_storage() || at::functionalization::impl::isFunctionalTensor(x)) return false;
  return x.storage().device_type() != at::kMeta && (x.numel() == 0 || x.storage().data() != nullptr);
}

// Gives `out` a value computed apart from it, after the checks that out= promises, made on the originals.
void assign(const char* op, at::Tensor& out, const at::Tensor& value, std::initializer_list<Named> inputs) {
  bool comparable = has_memory(out);
  for (const Named& input : inputs) comparable = comparable && has_memory(input.tensor);
  if (comparable) {
    prepare_out(op, out, value.sizes(), value.scalar_type(), inputs);
  } else {
    check_out(op, out, value.scalar_type(), inputs);
    at::native::resize_output_symint(out, value.sym_sizes());
  }
  out.copy_(value);
}

// Whether the result can go straight to `out` once the operands are resolved: out has the result's shape and is not
// stored conjugated or negated. Refuses, before anything is computed, what prepare_out() refuses.
bool writable_in_place(const char* op, const at::Tensor& out, at::IntArrayRef shape,
                       std::initializer_list<Named> inputs) {
  if (!has_memory(out) || out.sizes() != shape) return false;
  prepare_out(op, out, shape, inputs.begin()->tensor.scalar_type(), inputs);
  return !out.is_conj() && !out.is_neg();
}

template <DispatchKey key>
at::Tensor& tiled_matmul_out_resolved(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b,
                                      c10::string_view algorithm, at::Tensor& out) {
  const auto redispatch = [&]() -> at::Tensor& {
    return matmul_out_operator().redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key),
                                            resolve<key>(a), resolve<key>(b), algorithm, out);
  };
  if (!is_plain(a) || !is_plain(b) || !is_plain(out)) return redispatch();
  // Errors in the operands come first, from the operator itself.
  const bool valid = has_memory(a) && has_memory(b) && a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) &&
                     a.scalar_type() == b.scalar_type() && a.device() == b.device();
  if (valid && writable_in_place("tiled_matmul", out, {a.size(0), b.size(1)}, {{"a", a}, {"b", b}})) {
    return redispatch();
  }
  const at::Tensor value = matmul_operator().call(a, b, algorithm);
  assign("tiled_matmul", out, value, {{"a", a}, {"b", b}});
  return out;
}

template <DispatchKey key>
at::Tensor& padded_transpose_out_resolved(c10::DispatchKeySet keys, const at::Tensor& x, c10::string_view algorithm,
                                          at::Tensor& out) {
  const auto redispatch = [&]() -> at::Tensor& {
    return transpose_out_operator().redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key),
                                               resolve<key>(x), algorithm, out);
  };
  if (!is_plain(x) || !is_plain(out)) return redispatch();
  const bool valid = has_memory(x) && x.dim() <= 2;
  if (valid && writable_in_place("padded_transpose", out, x.t().sizes(), {{"x", x}})) return redispatch();
  const at::Tensor value = transpose_operator().call(x, algorithm);
  assign("padded_transpose", out, value, {{"x", x}});
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
