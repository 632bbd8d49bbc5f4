#include "ops/tiled_matmul.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <array>
#include <optional>

#include "ops/tensor_checks.h"

namespace pmpp::ops {
namespace {

constexpr const char* kOp = "tiled_matmul";

void check_matrix(Named operand) {
  check_defined(kOp, operand);
  TORCH_CHECK(operand.tensor.dim() == 2, kOp, ": ", operand.name, " must be a matrix, but it has ",
              operand.tensor.dim(), " dimension(s) (shape ", operand.tensor.sym_sizes(), ")");
}

// ndim, shape, device. Symbolic sizes are compared without being specialised.
void check_operands(const at::Tensor& a, const at::Tensor& b) {
  check_matrix({"a", a});
  check_matrix({"b", b});
  TORCH_SYM_CHECK(a.sym_size(1).sym_eq(b.sym_size(0)), kOp, ": a and b shapes cannot be multiplied (", a.sym_size(0),
                  "x", a.sym_size(1), " and ", b.sym_size(0), "x", b.sym_size(1), ")");
  check_same_device(kOp, {"a", a}, {"b", b});
}

std::optional<DType> supported_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kComplexFloat:
      return DType::kComplex64;
    case at::kComplexDouble:
      return DType::kComplex128;
    case at::kByte:
      return DType::kUInt8;
    case at::kChar:
      return DType::kInt8;
    case at::kShort:
      return DType::kInt16;
    case at::kInt:
      return DType::kInt32;
    case at::kLong:
      return DType::kInt64;
    default:
      return std::nullopt;
  }
}

DType check_dtypes(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), kOp, ": expected a and b to have the same dtype, but got a ",
              a.scalar_type(), " and b ", b.scalar_type());
  const std::optional<DType> dtype = supported_dtype(a.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(dtype.has_value(), "\"", kOp, "\" not implemented for '", a.scalar_type(), "'");
  return *dtype;
}

matmul::Algorithm check_algorithm(c10::string_view name) {
  const std::optional<matmul::Algorithm> algorithm = matmul::parse_algorithm({name.data(), name.size()});
  if (!algorithm.has_value()) {
    std::vector<std::string> known;
    for (const matmul::Algorithm value : matmul::kAllAlgorithms) known.emplace_back(matmul::algorithm_name(value));
    throw_unknown_algorithm(kOp, {name.data(), name.size()}, known);
  }
  return *algorithm;
}

struct Call {
  matmul::Problem problem;
  matmul::Algorithm asked;
  matmul::Plan plan;
};

// The problem without its addresses, and its plan for a contiguous result: dtype and algorithm are checked here.
Call make_call(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  Call call;
  call.problem.dtype = check_dtypes(a, b);
  call.problem.m = a.size(0);
  call.problem.n = b.size(1);
  call.problem.k = a.size(1);
  call.problem.a = {nullptr, a.stride(0), a.stride(1), 0};
  call.problem.b = {nullptr, b.stride(0), b.stride(1), 0};
  call.problem.d = {nullptr, call.problem.n, 1, 0};
  call.asked = check_algorithm(algorithm);
  const DeviceFacts facts = backend.facts(a.device());
  const std::optional<matmul::Plan> plan = matmul::select(call.problem, facts, call.asked);
  if (!plan.has_value()) {
    throw_unavailable_algorithm(kOp, matmul::algorithm_name(call.asked), a.scalar_type(), a.device(),
                                tiled_matmul_algorithms(facts, a.scalar_type()));
  }
  call.plan = *plan;
  return call;
}

// Addresses are taken last: resizing `out` moves the storage that it may share with an operand.
void run_into(const MatmulBackend& backend, Call& call, const at::Tensor& a, const at::Tensor& b,
              const at::Tensor& out) {
  call.problem.a.data = a.const_data_ptr();
  call.problem.b.data = b.const_data_ptr();
  const bool contiguous = out.is_contiguous();
  call.problem.d = {out.mutable_data_ptr(), contiguous ? call.problem.n : out.stride(0), contiguous ? 1 : out.stride(1),
                    0};
  if (!contiguous) call.plan = matmul::select(call.problem, backend.facts(out.device()), call.asked).value();
  backend.run(call.plan, call.problem, out.device());
}

bool needs_kernel(const at::Tensor& a, const at::Tensor& b) { return a.numel() != 0 && b.numel() != 0; }

// The same for sizes that may be symbolic. Only asked when a dtype or algorithm is wrong, because the answer
// specialises the sizes of a traced graph.
bool needs_kernel_symbolic(const at::Tensor& a, const at::Tensor& b) {
  return a.sym_numel() != 0 && b.sym_numel() != 0;
}

void check_meta(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  check_operands(a, b);
  const bool valid = a.scalar_type() == b.scalar_type() && supported_dtype(a.scalar_type()).has_value() &&
                     matmul::parse_algorithm({algorithm.data(), algorithm.size()}).has_value();
  if (valid || !needs_kernel_symbolic(a, b)) return;
  check_dtypes(a, b);
  check_algorithm(algorithm);
}

}  // namespace

at::Tensor tiled_matmul(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                        c10::string_view algorithm) {
  check_operands(a, b);
  const std::array<std::int64_t, 2> shape = {a.size(0), b.size(1)};
  if (!needs_kernel(a, b)) return at::zeros(shape, a.options());
  Call call = make_call(backend, a, b, algorithm);
  at::Tensor result = at::empty(shape, a.options());
  run_into(backend, call, a, b, result);
  return result;
}

at::Tensor& tiled_matmul_out(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                             c10::string_view algorithm, at::Tensor& out) {
  check_operands(a, b);
  const std::array<std::int64_t, 2> shape = {a.size(0), b.size(1)};
  if (!needs_kernel(a, b)) {
    prepare_out(kOp, out, shape, a.scalar_type(), {{"a", a}, {"b", b}});
    return out.zero_();
  }
  Call call = make_call(backend, a, b, algorithm);
  prepare_out(kOp, out, shape, a.scalar_type(), {{"a", a}, {"b", b}});
  run_into(backend, call, a, b, out);
  return out;
}

at::Tensor tiled_matmul_meta(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  check_meta(a, b, algorithm);
  return at::empty_symint({a.sym_size(0), b.sym_size(1)}, a.options());
}

at::Tensor& tiled_matmul_out_meta(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm,
                                  at::Tensor& out) {
  check_meta(a, b, algorithm);
  check_out(kOp, out, a.scalar_type(), {{"a", a}});
  at::native::resize_output_symint(out, {a.sym_size(0), b.sym_size(1)});
  return out;
}

std::string tiled_matmul_plan(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                              c10::string_view algorithm) {
  check_operands(a, b);
  if (!needs_kernel(a, b)) return "none: empty";
  return matmul::to_string(make_call(backend, a, b, algorithm).plan);
}

std::vector<std::string> tiled_matmul_algorithms(const DeviceFacts& device, at::ScalarType dtype) {
  std::vector<std::string> names;
  const std::optional<DType> supported = supported_dtype(dtype);
  if (!supported.has_value()) return names;
  for (const matmul::Algorithm algorithm : matmul::algorithms(*supported, device)) {
    names.emplace_back(matmul::algorithm_name(algorithm));
  }
  return names;
}

}  // namespace pmpp::ops
