// Dispatch key FuncTorchBatched: the vmap rules. A batched tensor holds its batch as one more dimension; the rules take
// it out, run all matrices of the batch in one launch, and put it back. What vmap maps over one operand alone becomes
// more rows or columns of a single product where the operand's strides allow that, else a batch whose other operand has
// stride 0. Every step is an operator that autograd and further levels of vmap see.
//
// An out= call has no rule, as in PyTorch, whose fallback refuses it.
#include <ATen/functorch/BatchedTensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "ops/operators.h"
#include "ops/padded_transpose.h"
#include "ops/tiled_matmul.h"

namespace pmpp::ops {
namespace {

using at::functorch::makeBatched;
using at::functorch::maybeGetBatchedImpl;

std::int64_t level_of(const at::Tensor& x) {
  const auto* batched = maybeGetBatchedImpl(x);
  return batched == nullptr ? -1 : batched->level();
}

// An operand without the batch dimension of one level: `dim` is where it lies in `value`, none if it has none there.
struct Unwrapped {
  at::Tensor value;
  std::optional<std::int64_t> dim;

  // The value with the batch, which it must have, at `position`.
  at::Tensor batch_at(std::int64_t position) const { return value.movedim(*dim, position); }
};

Unwrapped unwrap(const at::Tensor& x, std::int64_t level) {
  if (level_of(x) != level) return {x, std::nullopt};
  const auto* batched = maybeGetBatchedImpl(x);
  return {batched->value(), batched->bdim()};
}

// Outside of vmap a batched tensor is one that has escaped from it.
void check_inside(const char* op) {
  TORCH_CHECK(c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchVmapMode), op,
              ": a tensor that vmap had batched was used outside of that vmap; return it from the mapped function "
              "instead");
}

// Whether dimension i of x and the next one can be one dimension of a view.
bool mergeable(const at::Tensor& x, std::int64_t i) {
  return x.sym_stride(i) == x.sym_size(i + 1) * x.sym_stride(i + 1);
}

// The batch of a (batch, m, k) becomes rows of one product: (batch m, k) or (m batch, k), whichever is a view.
std::optional<at::Tensor> multiply_rows(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm,
                                        std::int64_t& result_dim) {
  for (const std::int64_t dim : {0, 1}) {
    const at::Tensor moved = dim == 0 ? a : a.movedim(0, 1);
    if (!mergeable(moved, 0)) continue;
    result_dim = dim;
    return matmul_operator()
        .call(moved.flatten(0, 1), b, algorithm)
        .view_symint({moved.sym_size(0), moved.sym_size(1), b.sym_size(1)});
  }
  return std::nullopt;
}

// The batch of b (batch, k, n) becomes columns: (k, batch n) or (k, n batch).
std::optional<at::Tensor> multiply_columns(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm,
                                           std::int64_t& result_dim) {
  for (const std::int64_t dim : {1, 2}) {
    const at::Tensor moved = b.movedim(0, dim);
    if (!mergeable(moved, 1)) continue;
    result_dim = dim;
    return matmul_operator()
        .call(a, moved.flatten(1, 2), algorithm)
        .view_symint({a.sym_size(0), moved.sym_size(1), moved.sym_size(2)});
  }
  return std::nullopt;
}

at::Tensor expand_batch(const at::Tensor& x, const c10::SymInt& batch) {
  return x.unsqueeze(0).expand_symint({batch, x.sym_size(0), x.sym_size(1)});
}

at::Tensor tiled_matmul_batched(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  check_inside("tiled_matmul");
  check_matmul_operands(a, b);
  const std::int64_t level = std::max(level_of(a), level_of(b));
  const Unwrapped x = unwrap(a, level);
  const Unwrapped y = unwrap(b, level);
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  std::int64_t result_dim = 0;
  std::optional<at::Tensor> result;
  if (x.dim && y.dim) {
    result = batched_matmul_operator().call(x.batch_at(0), y.batch_at(0), algorithm);
  } else if (x.dim) {
    const at::Tensor left = x.batch_at(0);
    result = multiply_rows(left, y.value, algorithm, result_dim);
    if (!result) {
      result = batched_matmul_operator().call(left, expand_batch(y.value, left.sym_size(0)), algorithm);
    }
  } else {
    const at::Tensor right = y.batch_at(0);
    result = multiply_columns(x.value, right, algorithm, result_dim);
    if (!result) {
      result = batched_matmul_operator().call(expand_batch(x.value, right.sym_size(0)), right, algorithm);
    }
  }
  return makeBatched(*result, result_dim, level);
}

// The batch of another level becomes part of the one that is there: (outer, batch, ...) to (outer batch, ...), copied
// where no view can be had.
at::Tensor merge_batch(const Unwrapped& x, const c10::SymInt& outer) {
  if (x.dim) return x.batch_at(0).flatten(0, 1);
  return x.value.unsqueeze(0)
      .expand_symint({outer, x.value.sym_size(0), x.value.sym_size(1), x.value.sym_size(2)})
      .flatten(0, 1);
}

at::Tensor split_batch(const at::Tensor& result, const c10::SymInt& outer, const c10::SymInt& inner) {
  return result.view_symint({outer, inner, result.sym_size(1), result.sym_size(2)});
}

at::Tensor batched_matmul_batched(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  check_inside("tiled_matmul");
  const std::int64_t level = std::max(level_of(a), level_of(b));
  const Unwrapped x = unwrap(a, level);
  const Unwrapped y = unwrap(b, level);
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  const c10::SymInt outer = x.dim ? x.value.sym_size(*x.dim) : y.value.sym_size(*y.dim);
  const at::Tensor result = batched_matmul_operator().call(merge_batch(x, outer), merge_batch(y, outer), algorithm);
  return makeBatched(split_batch(result, outer, a.sym_size(0)), 0, level);
}

at::Tensor padded_transpose_batched(const at::Tensor& x, c10::string_view algorithm) {
  check_inside("padded_transpose");
  check_transpose_ndim(x);
  const std::int64_t level = level_of(x);
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  const at::Tensor value = unwrap(x, level).batch_at(0);
  if (x.dim() == 2) return makeBatched(batched_transpose_operator().call(value, algorithm), 0, level);
  // Vectors and scalars come back as a copy; a batch of vectors is one of matrices with a single column.
  if (x.dim() == 1) {
    return makeBatched(batched_transpose_operator().call(value.unsqueeze(-1), algorithm).squeeze(1), 0, level);
  }
  return makeBatched(transpose_operator().call(value, algorithm), 0, level);
}

at::Tensor batched_transpose_batched(const at::Tensor& x, c10::string_view algorithm) {
  check_inside("padded_transpose");
  const std::int64_t level = level_of(x);
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  const at::Tensor value = unwrap(x, level).batch_at(0);
  const at::Tensor result = batched_transpose_operator().call(value.flatten(0, 1), algorithm);
  return makeBatched(split_batch(result, value.sym_size(0), value.sym_size(1)), 0, level);
}

}  // namespace

TORCH_LIBRARY_IMPL(pmpp, FuncTorchBatched, m) {
  m.impl("tiled_matmul", tiled_matmul_batched);
  m.impl("padded_transpose", padded_transpose_batched);
  m.impl("_batched_matmul", batched_matmul_batched);
  m.impl("_batched_transpose", batched_transpose_batched);
}

}  // namespace pmpp::ops
