#include "ops/tensor_checks.h"

#include <ATen/native/Resize.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

namespace pmpp::ops {
namespace {

// Memory of a tensor of at most two dimensions: rows of equally spaced elements, in bytes. The outer step is the larger
// one, so that rows follow each other in memory wherever the tensor is an ordinary view.
struct Lattice {
  std::int64_t begin, end;  // addresses of the first byte and past the last
  std::int64_t outer_size, outer_step, inner_size, inner_step;
  std::int64_t element_size;

  std::int64_t row_begin(std::int64_t row) const { return begin + row * outer_step; }
  std::int64_t row_bytes() const { return (inner_size - 1) * inner_step + element_size; }
};

Lattice make_lattice(const at::Tensor& x) {
  std::array<std::int64_t, 2> size = {1, 1};
  std::array<std::int64_t, 2> step = {0, 0};
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    size[i] = x.size(i);
    // The stride of a dimension with one element is never used and may be anything.
    step[i] = x.size(i) == 1 ? 0 : x.stride(i) * x.element_size();
  }
  if (step[0] < step[1]) {
    std::swap(size[0], size[1]);
    std::swap(step[0], step[1]);
  }
  Lattice lattice;
  lattice.begin = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x.const_data_ptr()));
  lattice.outer_size = size[0];
  lattice.outer_step = step[0];
  lattice.inner_size = size[1];
  lattice.inner_step = step[1];
  lattice.element_size = x.element_size();
  lattice.end = lattice.row_begin(size[0] - 1) + lattice.row_bytes();
  return lattice;
}

std::int64_t floor_div(std::int64_t value, std::int64_t divisor) {
  const std::int64_t quotient = value / divisor;
  return quotient - (value % divisor != 0 && (value < 0) != (divisor < 0) ? 1 : 0);
}

std::int64_t positive_mod(std::int64_t value, std::int64_t divisor) {
  return value - floor_div(value, divisor) * divisor;
}

// Inverse of value modulo modulus, for coprime arguments.
std::int64_t inverse_mod(std::int64_t value, std::int64_t modulus) {
  std::int64_t r0 = modulus, r1 = positive_mod(value, modulus), t0 = 0, t1 = 1;
  while (r1 != 0) {
    const std::int64_t quotient = r0 / r1;
    r0 -= quotient * r1;
    std::swap(r0, r1);
    t0 -= quotient * t1;
    std::swap(t0, t1);
  }
  return positive_mod(t0, modulus);
}

// Whether {i * s : 0 <= i < count_s} and {offset + j * t : 0 <= j < count_t} have a common value, for s, t >= 0.
bool progressions_meet(std::int64_t s, std::int64_t count_s, std::int64_t offset, std::int64_t t,
                       std::int64_t count_t) {
  if (s == 0 || count_s == 1) {
    // The single value 0 has to be offset + j * t.
    if (t == 0 || count_t == 1) return offset == 0;
    return offset <= 0 && -offset % t == 0 && -offset / t < count_t;
  }
  if (t == 0 || count_t == 1) return offset >= 0 && offset % s == 0 && offset / s < count_s;
  const std::int64_t divisor = std::gcd(s, t);
  if (offset % divisor != 0) return false;
  // i * s = offset + j * t: i is fixed modulo t / divisor; take the smallest i that makes j >= 0 and see whether both
  // stay within their counts.
  const std::int64_t period = t / divisor;
  std::int64_t i = 0;
  if (period > 1) {
    // The product of two residues needs more than 64 bits for large strides.
    __extension__ using Wide = __int128;
    const Wide product = static_cast<Wide>(positive_mod(offset / divisor, period)) * inverse_mod(s / divisor, period);
    i = static_cast<std::int64_t>(product % period);
  }
  const std::int64_t least = offset > 0 ? floor_div(offset + s - 1, s) : 0;
  if (i < least) i += (least - i + period - 1) / period * period;
  return i < count_s && (i * s - offset) / t < count_t;
}

// Pairs of rows compared before giving up. Ordinary views need about one a row.
constexpr std::int64_t kMaxRowPairs = std::int64_t{1} << 24;

bool lattices_meet(const Lattice& x, const Lattice& y) {
  if (x.begin >= y.end || y.begin >= x.end) return false;
  const std::int64_t element = x.element_size;
  const bool whole_elements = y.element_size == element && (y.begin - x.begin) % element == 0;
  if (!whole_elements) return true;

  if (x.outer_step == y.outer_step && x.outer_step > 0) {
    // Two views of one matrix: how rows lie to each other depends on the difference of their numbers alone.
    const std::int64_t step = x.outer_step;
    const std::int64_t least = floor_div(x.begin - y.begin - y.row_bytes(), step) + 1;
    const std::int64_t most = floor_div(x.begin + x.row_bytes() - 1 - y.begin, step);
    for (std::int64_t difference = std::max(least, 1 - x.outer_size); difference <= std::min(most, y.outer_size - 1);
         ++difference) {
      if (progressions_meet(x.inner_step, x.inner_size, y.row_begin(difference) - x.begin, y.inner_step,
                            y.inner_size)) {
        return true;
      }
    }
    return false;
  }

  std::int64_t pairs = 0;
  for (std::int64_t row = 0; row < x.outer_size; ++row) {
    const std::int64_t begin = x.row_begin(row);
    const std::int64_t end = begin + x.row_bytes();
    // Rows of y that reach into [begin, end).
    std::int64_t first = 0;
    std::int64_t last = y.outer_size - 1;
    if (y.outer_step > 0) {
      first = std::max<std::int64_t>(0, floor_div(begin - y.begin - y.row_bytes(), y.outer_step) + 1);
      last = std::min(last, floor_div(end - 1 - y.begin, y.outer_step));
    }
    for (std::int64_t other = first; other <= last; ++other) {
      if (++pairs > kMaxRowPairs) return true;
      if (progressions_meet(x.inner_step, x.inner_size, y.row_begin(other) - begin, y.inner_step, y.inner_size)) {
        return true;
      }
      if (y.outer_step == 0) break;
    }
    if (x.outer_step == 0) break;
  }
  return false;
}

}  // namespace

void check_defined(const char* op, Named tensor) {
  TORCH_CHECK(tensor.tensor.defined(), op, ": expected ", tensor.name, " to be a tensor, but got None");
}

void check_same_device(const char* op, Named reference, Named tensor) {
  TORCH_CHECK(reference.tensor.device() == tensor.tensor.device(), op,
              ": expected all tensors to be on the same device, but ", reference.name, " is on ",
              reference.tensor.device(), " and ", tensor.name, " is on ", tensor.tensor.device());
}

bool share_memory(const at::Tensor& x, const at::Tensor& y) {
  if (x.numel() == 0 || y.numel() == 0) return false;
  return lattices_meet(make_lattice(x), make_lattice(y));
}

bool overlaps_itself(const at::Tensor& x) {
  if (x.numel() <= 1) return false;
  const Lattice lattice = make_lattice(x);
  if (lattice.inner_size > 1 && lattice.inner_step == 0) return true;
  if (lattice.outer_size > 1 && lattice.outer_step == 0) return true;
  if (lattice.inner_size == 1 || lattice.outer_size == 1) return false;
  // The smallest nonzero (di, dj) with di * outer = dj * inner.
  const std::int64_t divisor = std::gcd(lattice.outer_step, lattice.inner_step);
  return lattice.inner_step / divisor < lattice.outer_size && lattice.outer_step / divisor < lattice.inner_size;
}

namespace {

void check_overlap(const char* op, const at::Tensor& out, std::initializer_list<Named> inputs) {
  TORCH_CHECK(!overlaps_itself(out), op,
              ": out overlaps itself in memory: several of its elements share one address (shape ", out.sizes(),
              ", strides ", out.strides(), ")");
  for (const Named& input : inputs) {
    TORCH_CHECK(!share_memory(out, input.tensor), op, ": out overlaps ", input.name,
                " in memory; give it storage of its own (out: shape ", out.sizes(), ", strides ", out.strides(), "; ",
                input.name, ": shape ", input.tensor.sizes(), ", strides ", input.tensor.strides(), ")");
  }
}

}  // namespace

void check_out(const char* op, const at::Tensor& out, at::ScalarType dtype, std::initializer_list<Named> inputs) {
  check_defined(op, {"out", out});
  TORCH_CHECK(out.scalar_type() == dtype, op, ": expected out to have dtype ", dtype, ", but got ", out.scalar_type());
  for (const Named& input : inputs) check_same_device(op, input, {"out", out});
}

void prepare_out(const char* op, const at::Tensor& out, at::IntArrayRef shape, at::ScalarType dtype,
                 std::initializer_list<Named> inputs) {
  check_out(op, out, dtype, inputs);
  // Of another shape, out may have more than two dimensions and will get new strides; what counts is the resized one.
  if (out.dim() <= 2) check_overlap(op, out, inputs);
  if (at::native::resize_output(out, shape)) check_overlap(op, out, inputs);
}

std::string join(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) {
    if (!text.empty()) text += ", ";
    text += value;
  }
  return text;
}

void throw_unknown_algorithm(const char* op, std::string_view algorithm, const std::vector<std::string>& known) {
  TORCH_CHECK_VALUE(false, op, ": unknown algorithm '", algorithm, "'; expected one of ", join(known));
  __builtin_unreachable();
}

void throw_unavailable_algorithm(const char* op, std::string_view algorithm, at::ScalarType dtype,
                                 const at::Device& device, std::vector<std::string> available) {
  available.insert(available.begin(), "auto");
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, ": algorithm '", algorithm, "' is not available for ", dtype, " on ", device,
                              "; available: ", join(available));
  __builtin_unreachable();
}

}  // namespace pmpp::ops
