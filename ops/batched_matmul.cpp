#include "ops/batched_matmul.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <array>

#include "ops/result_memory.h"
#include "ops/tensor_checks.h"

namespace pmpp::ops {
namespace {

constexpr const char* kOp = "tiled_matmul";

void check_batch(Named operand) {
  check_defined(kOp, operand);
  TORCH_CHECK(operand.tensor.dim() == 3, kOp, ": ", operand.name, " must be a batch of matrices, but it has ",
              operand.tensor.dim(), " dimension(s) (shape ", operand.tensor.sym_sizes(), ")");
}

void check_batches(const at::Tensor& a, const at::Tensor& b) {
  check_batch({"a", a});
  check_batch({"b", b});
  TORCH_SYM_CHECK(a.sym_size(0).sym_eq(b.sym_size(0)), kOp,
                  ": expected a and b to hold equally many matrices, but a has ", a.sym_size(0), " and b ",
                  b.sym_size(0));
  TORCH_SYM_CHECK(a.sym_size(2).sym_eq(b.sym_size(1)), kOp, ": a and b shapes cannot be multiplied (", a.sym_size(1),
                  "x", a.sym_size(2), " and ", b.sym_size(1), "x", b.sym_size(2), ")");
  check_same_device(kOp, {"a", a}, {"b", b});
}

}  // namespace

at::Tensor batched_matmul(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                          c10::string_view algorithm) {
  check_batches(a, b);
  const std::array<std::int64_t, 3> shape = {a.size(0), a.size(1), b.size(2)};
  if (a.numel() == 0 || b.numel() == 0) return at::zeros(shape, a.options());
  MatmulCall call = make_matmul_call(backend, a, b, algorithm);
  at::Tensor result = empty_result(shape, a.options());
  run_matmul(backend, call, result);
  return result;
}

at::Tensor batched_matmul_meta(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  check_batches(a, b);
  check_matmul_arguments(a, b, algorithm);
  return at::empty_symint({a.sym_size(0), a.sym_size(1), b.sym_size(2)}, a.options());
}

}  // namespace pmpp::ops
