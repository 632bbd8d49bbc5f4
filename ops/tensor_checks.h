// Checks and messages that both operators share.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace pmpp::ops {

// A tensor and the name of its argument, for messages.
struct Named {
  const char* name;
  const at::Tensor& tensor;
};

// Throws for the undefined tensor that None becomes.
void check_defined(const char* op, Named tensor);

// Throws unless `tensor` is on the device of `reference`; names both arguments and both devices.
void check_same_device(const char* op, Named reference, Named tensor);

// What out= promises and no memory is needed for: a tensor of this dtype, on the device of the inputs.
void check_out(const char* op, const at::Tensor& out, at::ScalarType dtype, std::initializer_list<Named> inputs);

// Everything out= promises, in order: dtype, device, no overlap with itself or an input, and then the shape, to which a
// differing `out` is resized with PyTorch's warning.
void prepare_out(const char* op, const at::Tensor& out, at::IntArrayRef shape, at::ScalarType dtype,
                 std::initializer_list<Named> inputs);

// Whether an element of x and one of y share a byte. Exact for tensors of at most two dimensions whose addresses differ
// by whole elements, also where strides interleave them (two column slices of one matrix do not overlap); where that
// would take more than 2^24 comparisons of rows, and for any other pair, meeting address ranges count as overlapping.
// Both tensors are on one device.
bool share_memory(const at::Tensor& x, const at::Tensor& y);

// Whether two elements of x, of at most two dimensions, share an address.
bool overlaps_itself(const at::Tensor& x);

// "auto, naive, tiled": the values joined for a message.
std::string join(const std::vector<std::string>& values);

// Throws the ValueError for an algorithm that no device knows.
[[noreturn]] void throw_unknown_algorithm(const char* op, std::string_view algorithm,
                                          const std::vector<std::string>& known);

// Throws the NotImplementedError for an algorithm that this dtype or device lacks.
[[noreturn]] void throw_unavailable_algorithm(const char* op, std::string_view algorithm, at::ScalarType dtype,
                                              const at::Device& device, std::vector<std::string> available);

}  // namespace pmpp::ops
