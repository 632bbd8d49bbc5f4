// Counts of what ran: for each operator the calls of each kernel, and for each replaced function of PyTorch the calls
// that were taken, and those that went back to PyTorch, by reason. One relaxed atomic addition a call.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "csrc/padded_transpose/select.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::ops {

// The functions of aten that replace_mm() takes over; an out= form counts as the function itself.
enum class Replaced : std::uint8_t { kMm, kAddmm, kBmm, kBaddbmm };
inline constexpr int kReplacedCount = 4;

// Why a call went to PyTorch's own kernel.
enum class Fallback : std::uint8_t { kDtype, kShape, kEmpty, kLayout, kDevice, kOut, kScalar, kNames };
inline constexpr int kFallbackCount = 8;

void count_matmul(const matmul::Plan& plan);
void count_transpose(const transposition::Plan& plan);
void count_taken(Replaced function, bool is_cuda);
void count_fallback(Replaced function, bool is_cuda, Fallback reason);

// All counts above 0, each under the parts of its name: {"kernel", "cpu", "tiled_matmul", "blocked"}, {"taken", "cuda",
// "addmm"}, {"fallback", "cpu", "mm", "dtype"}, joined by '/'. Counts of calls in flight on other threads may be
// missing.
std::vector<std::pair<std::string, std::int64_t>> stats();
void reset_stats();

}  // namespace pmpp::ops
