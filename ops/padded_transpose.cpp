#include "ops/padded_transpose.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>

#include "ops/result_memory.h"
#include "ops/stats.h"
#include "ops/tensor_checks.h"

namespace pmpp::ops {
namespace {

constexpr const char* kOp = "padded_transpose";

}  // namespace

void check_transpose_ndim(const at::Tensor& x) {
  check_defined(kOp, {"x", x});
  TORCH_CHECK(x.dim() <= 2, kOp, ": expected a tensor with at most 2 dimensions, but x has ", x.dim(), " (shape ",
              x.sym_sizes(), ")");
}

namespace {

int check_element_size(const at::Tensor& x) {
  const auto bytes = static_cast<std::int64_t>(x.element_size());
  TORCH_CHECK_NOT_IMPLEMENTED(transposition::is_element_size(bytes), "\"", kOp, "\" not implemented for '",
                              x.scalar_type(), "': its elements have ", bytes, " bytes, not 1, 2, 4, 8 or 16");
  return static_cast<int>(bytes);
}

transposition::Algorithm check_algorithm(c10::string_view name) {
  const std::optional<transposition::Algorithm> algorithm = transposition::parse_algorithm({name.data(), name.size()});
  if (!algorithm.has_value()) {
    std::vector<std::string> known;
    for (const transposition::Algorithm value : transposition::kAllAlgorithms) {
      known.emplace_back(transposition::algorithm_name(value));
    }
    throw_unknown_algorithm(kOp, {name.data(), name.size()}, known);
  }
  return *algorithm;
}

template <class Size>
std::vector<Size> transposed(c10::ArrayRef<Size> sizes) {
  return {sizes.rbegin(), sizes.rend()};
}

struct Call {
  transposition::Problem problem;
  transposition::Algorithm asked;
  transposition::Plan plan;
};

// The problem without its addresses, for a contiguous result. A vector is a matrix of one row; a scalar one of one
// element; three dimensions are a batch of matrices.
Call make_call(const TransposeBackend& backend, const at::Tensor& x, c10::string_view algorithm) {
  Call call;
  call.problem.element_size = check_element_size(x);
  call.problem.batch = x.dim() == 3 ? x.size(0) : 1;
  call.problem.m = x.dim() >= 2 ? x.size(-2) : 1;
  call.problem.n = x.dim() == 0 ? 1 : x.size(-1);
  call.problem.in_batch_stride = x.dim() == 3 ? x.stride(0) : 0;
  call.problem.in_row_stride = x.dim() >= 2 ? x.stride(-2) : 0;
  call.problem.in_col_stride = x.dim() == 0 ? 0 : x.stride(-1);
  call.problem.out_row_stride = call.problem.m;
  call.problem.out_col_stride = 1;
  call.problem.out_batch_stride = call.problem.m * call.problem.n;
  call.asked = check_algorithm(algorithm);
  const DeviceFacts facts = backend.facts(x.device());
  const std::optional<transposition::Plan> plan = transposition::select(call.problem, facts, call.asked);
  if (!plan.has_value()) {
    throw_unavailable_algorithm(kOp, transposition::algorithm_name(call.asked), x.scalar_type(), x.device(),
                                padded_transpose_algorithms(facts, x.scalar_type()));
  }
  call.plan = *plan;
  return call;
}

// Addresses are taken last: resizing `out` moves the storage that it may share with x. With them comes the final plan,
// which depends on their alignment.
void run_into(const TransposeBackend& backend, Call& call, const at::Tensor& x, const at::Tensor& out) {
  call.problem.in = x.const_data_ptr();
  call.problem.out = out.mutable_data_ptr();
  call.problem.out_batch_stride = out.dim() == 3 ? out.stride(0) : 0;
  call.problem.out_row_stride = out.dim() == 0 ? 0 : out.stride(out.dim() == 1 ? 0 : -2);
  call.problem.out_col_stride = out.dim() >= 2 ? out.stride(-1) : 0;
  call.plan = transposition::select(call.problem, backend.facts(out.device()), call.asked).value();
  backend.run(call.plan, call.problem, out.device());
  count_transpose(call.plan);
}

void check_arguments_meta(const at::Tensor& x, c10::string_view algorithm) {
  const bool valid = transposition::is_element_size(x.element_size()) &&
                     transposition::parse_algorithm({algorithm.data(), algorithm.size()}).has_value();
  // Only a wrong call looks at the size, because that specialises it in a traced graph.
  if (valid || x.sym_numel() == 0) return;
  check_element_size(x);
  check_algorithm(algorithm);
}

void check_meta(const at::Tensor& x, c10::string_view algorithm) {
  check_transpose_ndim(x);
  check_arguments_meta(x, algorithm);
}

}  // namespace

at::Tensor padded_transpose(const TransposeBackend& backend, const at::Tensor& x, c10::string_view algorithm) {
  check_transpose_ndim(x);
  const std::vector<std::int64_t> shape = transposed(x.sizes());
  if (x.numel() == 0) return at::empty(shape, x.options());
  Call call = make_call(backend, x, algorithm);
  at::Tensor result = empty_result(shape, x.options());
  run_into(backend, call, x, result);
  return result;
}

at::Tensor& padded_transpose_out(const TransposeBackend& backend, const at::Tensor& x, c10::string_view algorithm,
                                 at::Tensor& out) {
  check_transpose_ndim(x);
  const std::vector<std::int64_t> shape = transposed(x.sizes());
  if (x.numel() == 0) {
    prepare_out(kOp, out, shape, x.scalar_type(), {{"x", x}});
    return out;
  }
  Call call = make_call(backend, x, algorithm);
  prepare_out(kOp, out, shape, x.scalar_type(), {{"x", x}});
  run_into(backend, call, x, out);
  return out;
}

at::Tensor padded_transpose_meta(const at::Tensor& x, c10::string_view algorithm) {
  check_meta(x, algorithm);
  return at::empty_symint(transposed(x.sym_sizes()), x.options());
}

at::Tensor& padded_transpose_out_meta(const at::Tensor& x, c10::string_view algorithm, at::Tensor& out) {
  check_meta(x, algorithm);
  check_out(kOp, out, x.scalar_type(), {{"x", x}});
  at::native::resize_output_symint(out, transposed(x.sym_sizes()));
  return out;
}

namespace {

void check_batch(const at::Tensor& x) {
  check_defined(kOp, {"x", x});
  TORCH_CHECK(x.dim() == 3, kOp, ": expected a batch of matrices, but x has ", x.dim(), " dimension(s) (shape ",
              x.sym_sizes(), ")");
}

}  // namespace

at::Tensor batched_transpose(const TransposeBackend& backend, const at::Tensor& x, c10::string_view algorithm) {
  check_batch(x);
  const std::vector<std::int64_t> shape = {x.size(0), x.size(2), x.size(1)};
  if (x.numel() == 0) return at::empty(shape, x.options());
  Call call = make_call(backend, x, algorithm);
  at::Tensor result = empty_result(shape, x.options());
  run_into(backend, call, x, result);
  return result;
}

at::Tensor batched_transpose_meta(const at::Tensor& x, c10::string_view algorithm) {
  check_batch(x);
  check_arguments_meta(x, algorithm);
  return at::empty_symint({x.sym_size(0), x.sym_size(2), x.sym_size(1)}, x.options());
}

std::string padded_transpose_plan(const TransposeBackend& backend, const at::Tensor& x, c10::string_view algorithm) {
  check_transpose_ndim(x);
  if (x.numel() == 0) return "none: empty";
  Call call = make_call(backend, x, algorithm);
  // A result of its own would start on a boundary; x may not.
  call.problem.in = x.const_data_ptr();
  return transposition::to_string(transposition::select(call.problem, backend.facts(x.device()), call.asked).value());
}

std::vector<std::string> padded_transpose_algorithms(const DeviceFacts& device, at::ScalarType dtype) {
  std::vector<std::string> names;
  if (c10::isQIntType(dtype)) return names;  // quantized tensors have a dispatch key of their own, which has no kernel
  for (const transposition::Algorithm algorithm :
       transposition::algorithms(static_cast<int>(c10::elementSize(dtype)), device)) {
    names.emplace_back(transposition::algorithm_name(algorithm));
  }
  return names;
}

}  // namespace pmpp::ops
