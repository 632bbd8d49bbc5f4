#include "ops/tiled_matmul.h"

#include <ATen/Context.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <array>
#include <optional>

#include "ops/result_memory.h"
#include "ops/stats.h"
#include "ops/tensor_checks.h"

namespace pmpp::ops {
namespace {

constexpr const char* kOp = "tiled_matmul";

void check_matrix(Named operand) {
  check_defined(kOp, operand);
  TORCH_CHECK(operand.tensor.dim() == 2, kOp, ": ", operand.name, " must be a matrix, but it has ",
              operand.tensor.dim(), " dimension(s) (shape ", operand.tensor.sym_sizes(), ")");
}

}  // namespace

void check_matmul_operands(const at::Tensor& a, const at::Tensor& b) {
  check_matrix({"a", a});
  check_matrix({"b", b});
  TORCH_SYM_CHECK(a.sym_size(1).sym_eq(b.sym_size(0)), kOp, ": a and b shapes cannot be multiplied (", a.sym_size(0),
                  "x", a.sym_size(1), " and ", b.sym_size(0), "x", b.sym_size(1), ")");
  check_same_device(kOp, {"a", a}, {"b", b});
}

std::optional<DType> matmul_dtype(at::ScalarType dtype) {
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

namespace {

DType check_dtypes(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), kOp, ": expected a and b to have the same dtype, but got a ",
              a.scalar_type(), " and b ", b.scalar_type());
  const std::optional<DType> dtype = matmul_dtype(a.scalar_type());
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

}  // namespace

// at::Context::allowTF32CuBLAS() raises where both interfaces have been used.
matmul::Float32Precision float32_precision(const DeviceFacts& device) {
  if (!device.is_cuda || at::NoTF32Guard::should_disable_tf32()) return matmul::Float32Precision::kIeee;
  const at::Float32Precision precision =
      at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  return precision == at::Float32Precision::TF32 ? matmul::Float32Precision::kTf32 : matmul::Float32Precision::kIeee;
}

namespace {

std::int64_t batch_stride(const at::Tensor& x) { return x.dim() == 3 ? x.stride(0) : 0; }

// c as if it had been expanded to the result: a dimension that it lacks, or of size 1, has stride 0.
matmul::Operand expanded(const at::Tensor& c) {
  const auto stride = [&](std::int64_t from_last) {
    return c.dim() >= from_last && c.size(-from_last) != 1 ? c.stride(-from_last) : 0;
  };
  return {c.const_data_ptr(), stride(2), stride(1), stride(3)};
}

}  // namespace

MatmulCall make_matmul_call(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                            c10::string_view algorithm, const Addend& addend) {
  MatmulCall call;
  const DeviceFacts facts = backend.facts(a.device());
  call.problem.dtype = check_dtypes(a, b);
  if (call.problem.dtype == DType::kFloat32) call.problem.precision = float32_precision(facts);
  call.problem.batch = a.dim() == 3 ? a.size(0) : 1;
  call.problem.m = a.size(-2);
  call.problem.n = b.size(-1);
  call.problem.k = a.size(-1);
  call.problem.a = {a.const_data_ptr(), a.stride(-2), a.stride(-1), batch_stride(a)};
  call.problem.b = {b.const_data_ptr(), b.stride(-2), b.stride(-1), batch_stride(b)};
  call.problem.d = {nullptr, call.problem.n, 1, a.dim() == 3 ? call.problem.m * call.problem.n : 0};
  call.problem.alpha = addend.alpha;
  if (addend.c != nullptr) {
    call.problem.c = expanded(*addend.c);
    call.problem.beta = addend.beta;
  }
  call.asked = check_algorithm(algorithm);
  const std::optional<matmul::Plan> plan = matmul::select(call.problem, facts, call.asked);
  if (!plan.has_value()) {
    throw_unavailable_algorithm(kOp, matmul::algorithm_name(call.asked), a.scalar_type(), a.device(),
                                tiled_matmul_algorithms(facts, a.scalar_type()));
  }
  call.plan = *plan;
  return call;
}

void run_matmul(const MatmulBackend& backend, MatmulCall& call, const at::Tensor& result) {
  call.problem.d.data = result.mutable_data_ptr();
  backend.run(call.plan, call.problem, result.device());
  count_matmul(call.plan);
}

void run_matmul_out(const MatmulBackend& backend, MatmulCall& call, const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& out) {
  call.problem.a.data = a.const_data_ptr();
  call.problem.b.data = b.const_data_ptr();
  call.problem.d = {out.mutable_data_ptr(), out.stride(-2), out.stride(-1), batch_stride(out)};
  const std::optional<matmul::Plan> plan = matmul::select(call.problem, backend.facts(out.device()), call.asked);
  TORCH_CHECK(plan.has_value(), kOp, ": no plan of ", matmul::algorithm_name(call.asked), " for ",
              matmul::to_string(call.problem));
  call.plan = *plan;
  backend.run(call.plan, call.problem, out.device());
  count_matmul(call.plan);
}

namespace {

bool needs_kernel(const at::Tensor& a, const at::Tensor& b) { return a.numel() != 0 && b.numel() != 0; }

// The same for sizes that may be symbolic. Only asked when a dtype or algorithm is wrong, because the answer
// specialises the sizes of a traced graph.
bool needs_kernel_symbolic(const at::Tensor& a, const at::Tensor& b) {
  return a.sym_numel() != 0 && b.sym_numel() != 0;
}

}  // namespace

void check_matmul_arguments(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  const bool valid = a.scalar_type() == b.scalar_type() && matmul_dtype(a.scalar_type()).has_value() &&
                     matmul::parse_algorithm({algorithm.data(), algorithm.size()}).has_value();
  if (valid || !needs_kernel_symbolic(a, b)) return;
  check_dtypes(a, b);
  check_algorithm(algorithm);
}

namespace {

void check_meta(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  check_matmul_operands(a, b);
  check_matmul_arguments(a, b, algorithm);
}

}  // namespace

at::Tensor tiled_matmul(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                        c10::string_view algorithm) {
  check_matmul_operands(a, b);
  const std::array<std::int64_t, 2> shape = {a.size(0), b.size(1)};
  if (!needs_kernel(a, b)) return at::zeros(shape, a.options());
  MatmulCall call = make_matmul_call(backend, a, b, algorithm);
  at::Tensor result = empty_result(shape, a.options());
  run_matmul(backend, call, result);
  return result;
}

at::Tensor& tiled_matmul_out(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                             c10::string_view algorithm, at::Tensor& out) {
  check_matmul_operands(a, b);
  const std::array<std::int64_t, 2> shape = {a.size(0), b.size(1)};
  if (!needs_kernel(a, b)) {
    prepare_out(kOp, out, shape, a.scalar_type(), {{"a", a}, {"b", b}});
    return out.zero_();
  }
  MatmulCall call = make_matmul_call(backend, a, b, algorithm);
  prepare_out(kOp, out, shape, a.scalar_type(), {{"a", a}, {"b", b}});
  run_matmul_out(backend, call, a, b, out);
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
  check_matmul_operands(a, b);
  if (!needs_kernel(a, b)) return "none: empty";
  return matmul::to_string(make_matmul_call(backend, a, b, algorithm).plan);
}

namespace {

// alpha * (a @ b) + beta * c of matrices or batches of them; a dimension of size 1 is repeated along the batch and, in
// c, along rows and columns.
matmul::Problem batched_problem(const DeviceFacts& device, const at::Tensor& a, const at::Tensor& b,
                                const std::optional<at::Tensor>& c, const at::Scalar& alpha, const at::Scalar& beta,
                                const at::Tensor& out) {
  TORCH_CHECK(a.dim() == 3 && b.dim() == 3 && out.dim() == 3, kOp, ": expected batches of matrices");
  check_same_device(kOp, {"a", a}, {"b", b});
  const std::array<std::int64_t, 3> shape = {out.size(0), a.size(1), b.size(2)};
  TORCH_CHECK(a.size(2) == b.size(1) && out.sizes() == c10::IntArrayRef(shape), kOp, ": shapes ", a.sizes(), ", ",
              b.sizes(), " and ", out.sizes(), " do not fit");
  const auto scalar = [](const at::Scalar& value) {
    const auto z = value.toComplexDouble();
    return matmul::Scalar{z.real(), z.imag(), value.isIntegral(true) ? value.toLong() : 0};
  };
  const auto operand = [&](const at::Tensor& tensor, std::int64_t rows, std::int64_t cols) {
    const at::Tensor view = tensor.expand({shape[0], rows, cols});
    return matmul::Operand{view.const_data_ptr(), view.stride(1), view.stride(2), view.stride(0)};
  };
  matmul::Problem problem;
  problem.dtype = check_dtypes(a, b);
  if (problem.dtype == DType::kFloat32) problem.precision = float32_precision(device);
  problem.batch = shape[0];
  problem.m = shape[1];
  problem.n = shape[2];
  problem.k = a.size(2);
  problem.a = operand(a, problem.m, problem.k);
  problem.b = operand(b, problem.k, problem.n);
  if (c.has_value()) problem.c = operand(*c, problem.m, problem.n);
  problem.d = {out.mutable_data_ptr(), out.stride(1), out.stride(2), out.stride(0)};
  problem.alpha = scalar(alpha);
  problem.beta = scalar(beta);
  return problem;
}

}  // namespace

std::vector<std::string> tiled_matmul_plans(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                                            c10::string_view algorithm, const at::Tensor& out) {
  std::vector<std::string> lines;
  const DeviceFacts facts = backend.facts(a.device());
  const matmul::Problem problem = batched_problem(facts, a, b, std::nullopt, 1, 0, out);
  for (const matmul::Plan& plan : matmul::plans(problem, facts, check_algorithm(algorithm))) {
    lines.push_back(matmul::to_string(plan));
  }
  return lines;
}

void tiled_matmul_with_plan(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                            c10::string_view algorithm, std::int64_t index, const std::optional<at::Tensor>& c,
                            const at::Scalar& alpha, const at::Scalar& beta, at::Tensor& out) {
  const DeviceFacts facts = backend.facts(a.device());
  const matmul::Problem problem = batched_problem(facts, a, b, c, alpha, beta, out);
  const std::vector<matmul::Plan> plans = matmul::plans(problem, facts, check_algorithm(algorithm));
  TORCH_CHECK_INDEX(index >= 0 && index < static_cast<std::int64_t>(plans.size()), kOp, ": there are ", plans.size(),
                    " plans of ", algorithm, ", and no number ", index);
  backend.run(plans[index], problem, out.device());
}

std::vector<std::string> tiled_matmul_algorithms(const DeviceFacts& device, at::ScalarType dtype) {
  std::vector<std::string> names;
  const std::optional<DType> supported = matmul_dtype(dtype);
  if (!supported.has_value()) return names;
  for (const matmul::Algorithm algorithm : matmul::algorithms(*supported, device, float32_precision(device))) {
    names.emplace_back(matmul::algorithm_name(algorithm));
  }
  return names;
}

}  // namespace pmpp::ops
