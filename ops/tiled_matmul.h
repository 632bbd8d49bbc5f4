// tiled_matmul on tensors: checks, result, plan, launch. Rules in the order in which they are checked: ndim, shape,
// device; an empty result or k = 0 then needs no kernel and returns before any dtype or algorithm is looked at; dtype,
// algorithm, out.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/string_view.h>

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

// The algorithms that run this dtype on this device, without "auto"; none for a dtype that is not multiplied.
std::vector<std::string> tiled_matmul_algorithms(const DeviceFacts& device, at::ScalarType dtype);

}  // namespace pmpp::ops
