// Memory of results.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>

namespace pmpp::ops {

// A new contiguous tensor with elements of any value, as at::empty. Large ones on the CPU come from result_allocator().
at::Tensor empty_result(at::IntArrayRef shape, const at::TensorOptions& options);

// Allocates what is smaller than kOwnMappingBytes as PyTorch does, and the rest in mappings of its own, of huge pages.
// Freed mappings are kept for results to come, kKeptBytes of them at most; the system may take their pages at any time.
//
// Fresh memory costs more than the transpose that fills it: on a Xeon of the third generation (Ice Lake), in a virtual
// machine, one thread, 64 MiB are mapped in 40 ms (4 KiB pages) or 12 ms (huge pages), and in 200 ms where the
// hypervisor has to map them as well, while a copy takes 14 ms. PyTorch maps results from 32 MiB on anew each time.
c10::Allocator& result_allocator();

inline constexpr std::size_t kOwnMappingBytes = std::size_t{4} << 20;
inline constexpr std::size_t kKeptBytes = std::size_t{1} << 30;

}  // namespace pmpp::ops
