// Typed handles of the registered operators, looked up once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/string_view.h>

namespace pmpp::ops {

using MatmulSignature = at::Tensor(const at::Tensor&, const at::Tensor&, c10::string_view);
using MatmulOutSignature = at::Tensor&(const at::Tensor&, const at::Tensor&, c10::string_view, at::Tensor&);
using TransposeSignature = at::Tensor(const at::Tensor&, c10::string_view);
using TransposeOutSignature = at::Tensor&(const at::Tensor&, c10::string_view, at::Tensor&);

inline const auto& matmul_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("pmpp::tiled_matmul", "").typed<MatmulSignature>();
  return op;
}

inline const auto& matmul_out_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("pmpp::tiled_matmul", "out").typed<MatmulOutSignature>();
  return op;
}

inline const auto& transpose_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("pmpp::padded_transpose", "").typed<TransposeSignature>();
  return op;
}

inline const auto& transpose_out_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("pmpp::padded_transpose", "out").typed<TransposeOutSignature>();
  return op;
}

// What vmap makes of the two.
inline const auto& batched_matmul_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("pmpp::_batched_matmul", "").typed<MatmulSignature>();
  return op;
}

inline const auto& batched_transpose_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("pmpp::_batched_transpose", "").typed<TransposeSignature>();
  return op;
}

}  // namespace pmpp::ops
