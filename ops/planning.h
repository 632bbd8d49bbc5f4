// The plan for a problem on a device that need not be there: for `python -m torch_pmpp explain`.
#pragma once

#include <ATen/core/Dict.h>
#include <c10/core/ScalarType.h>
#include <c10/util/string_view.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace pmpp::ops {

// A plan as one line, and what a reader of it may want to reckon with, by name. Both are empty where the device or the
// dtype has no such algorithm.
using PlanFacts = std::tuple<std::string, c10::Dict<std::string, std::int64_t>>;

// sizes: m, n, k of a product, or m, n of a transpose. layout: NN, NT, TN or TT for products (which operand lies
// transposed), ignored for transposes. device: the fields of DeviceFacts for a GPU, by name; all of them. Matrices are
// without gaps and start on boundaries; float32 is multiplied as PyTorch's setting allows. Throws ValueError for
// anything that does not fit.
PlanFacts plan_on(c10::string_view op, std::vector<std::int64_t> sizes, at::ScalarType dtype, c10::string_view layout,
                  c10::string_view algorithm, const c10::Dict<std::string, std::int64_t>& device);

// The algorithms that the device would offer for the dtype, without "auto".
std::vector<std::string> algorithms_on(c10::string_view op, at::ScalarType dtype,
                                       const c10::Dict<std::string, std::int64_t>& device);

}  // namespace pmpp::ops
