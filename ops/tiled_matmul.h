// tiled_matmul on tensors: checks, result, plan, launch. Rules in the order in which they are checked: ndim, shape,
// device; an empty result or k = 0 then needs no kernel and returns before any dtype or algorithm is looked at; dtype,
// algorithm, out.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/string_view.h>

#include <optional>
#include <string>
#include <vector>

#include "csrc/common/device_facts.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::ops {

// What differs between devices.
struct MatmulBackend {
  DeviceFacts (*facts)(const c10::Device& device);
  void (*run)(const matmul::Plan& plan, const matmul::Problem& problem, const c10::Device& device);
};

extern const MatmulBackend kMatmulCpu;
#ifdef PMPP_WITH_CUDA
extern const MatmulBackend kMatmulCuda;
#endif

at::Tensor tiled_matmul(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                        c10::string_view algorithm);
at::Tensor& tiled_matmul_out(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                             c10::string_view algorithm, at::Tensor& out);

// Shapes and dtypes alone; sizes may be symbolic.
at::Tensor tiled_matmul_meta(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm);
at::Tensor& tiled_matmul_out_meta(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm,
                                  at::Tensor& out);

// The plan for these operands as one line, without running it.
std::string tiled_matmul_plan(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                              c10::string_view algorithm);

// ndim, shape, device. Symbolic sizes are compared without being specialised.
void check_matmul_operands(const at::Tensor& a, const at::Tensor& b);

// dtype and algorithm, unless the result is empty or k = 0.
void check_matmul_arguments(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm);

// What is added to a product: the result is alpha * (a @ b) + beta * c. c has the operands' dtype and device and at
// most the result's dimensions; it is expanded to the result as PyTorch expands it, and null for nothing.
struct Addend {
  const at::Tensor* c = nullptr;
  matmul::Scalar alpha = matmul::scalar(1), beta = matmul::scalar(0);
};

struct MatmulCall {
  matmul::Problem problem;
  matmul::Algorithm asked;
  matmul::Plan plan;
};

// The problem for a row-major result that has yet to be made, and its plan; dtype and algorithm are checked here. For
// matrices, or for batches of them (batch, m, k) and (batch, k, n), whose shapes fit and are not empty.
MatmulCall make_matmul_call(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                            c10::string_view algorithm, const Addend& addend = {});

// Runs the call into a fresh row-major result.
void run_matmul(const MatmulBackend& backend, MatmulCall& call, const at::Tensor& result);

// Runs the call into an `out` of the caller's: the plan is made again with its strides and addresses. Those of the
// operands are taken anew, since resizing `out` moves the storage that it may share with one.
void run_matmul_out(const MatmulBackend& backend, MatmulCall& call, const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& out);

// What PyTorch lets cuBLAS do with float32 on such a device, whichever of its two interfaces has set it: allow_tf32 and
// set_float32_matmul_precision write to the same place as fp32_precision.
matmul::Float32Precision float32_precision(const DeviceFacts& device);

// The kernels' name of this dtype; none for one that is not multiplied.
std::optional<DType> matmul_dtype(at::ScalarType dtype);

// Every plan of the algorithm that can run out = a @ b, and out = alpha * (a @ b) + beta * c by the one with this index
// among them. Operands are 3-D, batch x rows x columns; those of a or b with a batch of 1, and any size of 1 of c, are
// repeated. For tests and measurements: no checks beyond shapes, device and dtype.
std::vector<std::string> tiled_matmul_plans(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                                            c10::string_view algorithm, const at::Tensor& out);
void tiled_matmul_with_plan(const MatmulBackend& backend, const at::Tensor& a, const at::Tensor& b,
                            c10::string_view algorithm, std::int64_t index, const std::optional<at::Tensor>& c,
                            const at::Scalar& alpha, const at::Scalar& beta, at::Tensor& out);

// The algorithms that run this dtype on this device, without "auto"; none for a dtype that is not multiplied.
std::vector<std::string> tiled_matmul_algorithms(const DeviceFacts& device, at::ScalarType dtype);

}  // namespace pmpp::ops
