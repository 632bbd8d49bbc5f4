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
