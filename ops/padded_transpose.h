// padded_transpose on tensors: checks, result, plan, launch. Rules in the order in which they are checked: ndim; an
// empty result then needs no kernel and returns before any dtype or algorithm is looked at; dtype, algorithm, out.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/string_view.h>

#include <string>
#include <vector>

#include "csrc/common/device_facts.hpp"
#include "csrc/padded_transpose/problem.hpp"
#include "csrc/padded_transpose/select.hpp"

namespace pmpp::ops {

// What differs between devices.
struct TransposeBackend {
  DeviceFacts (*facts)(const c10::Device& device);
  void (*run)(const transposition::Plan& plan, const transposition::Problem& problem, const c10::Device& device);
};

extern const TransposeBackend kTransposeCpu;
#ifdef PMPP_WITH_CUDA
extern const TransposeBackend kTransposeCuda;
#endif

at::Tensor padded_transpose(const TransposeBackend& backend, const at::Tensor& x, c10::string_view algorithm);
at::Tensor& padded_transpose_out(const TransposeBackend& backend, const at::Tensor& x, c10::string_view algorithm,
                                 at::Tensor& out);

// Throws unless x has at most two dimensions.
void check_transpose_ndim(const at::Tensor& x);

// Shapes and dtypes alone; sizes may be symbolic.
at::Tensor padded_transpose_meta(const at::Tensor& x, c10::string_view algorithm);
at::Tensor& padded_transpose_out_meta(const at::Tensor& x, c10::string_view algorithm, at::Tensor& out);

// Each matrix of a (batch, m, n) tensor, in one launch: a new row-major (batch, n, m) tensor.
at::Tensor batched_transpose(const TransposeBackend& backend, const at::Tensor& x, c10::string_view algorithm);
at::Tensor batched_transpose_meta(const at::Tensor& x, c10::string_view algorithm);

// The plan for this input as one line, without running it.
std::string padded_transpose_plan(const TransposeBackend& backend, const at::Tensor& x, c10::string_view algorithm);

// The algorithms that move elements of this dtype on this device, without "auto".
std::vector<std::string> padded_transpose_algorithms(const DeviceFacts& device, at::ScalarType dtype);

}  // namespace pmpp::ops
