// pmpp: matrix product and transpose for PyTorch tensors, the public C++ interface.
//
// Both operators go through PyTorch's dispatcher, so autograd records them as it records torch.mm, and the same tensors
// work on CPU and CUDA. Linking the library registers torch.ops.pmpp.* as well.
//
// Errors are exceptions of PyTorch: c10::Error for shapes, devices, dtypes and overlap, c10::NotImplementedError for a
// dtype or algorithm that the device cannot run, c10::ValueError for an unknown algorithm. The text names the operator,
// what was expected and the values found.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/util/string_view.h>

#if defined(__GNUC__)
#define PMPP_API __attribute__((visibility("default")))
#else
#define PMPP_API
#endif

namespace pmpp {

// a @ b, as torch.mm: a is (m, k), b is (k, n), both of any strides, on one device and of one dtype (float16, bfloat16,
// float32, float64, complex64, complex128, uint8, int8, int16, int32 or int64). The result is a new row-major (m, n)
// tensor of that dtype. 16-bit floats are summed in float32 and rounded once; integers wrap around.
// `algorithm` picks a step of the ladder (see README); "auto" is the fastest.
PMPP_API at::Tensor tiled_matmul(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm = "auto");

// The same into `out`, which keeps its strides, is resized with a warning when its shape differs, and must overlap
// neither an operand nor itself. Returns `out`. Not differentiable, as every out= function of PyTorch.
PMPP_API at::Tensor& tiled_matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                                      c10::string_view algorithm = "auto");

// x.t().contiguous() in memory of its own, always: x is (m, n) of any strides and any dtype of 1, 2, 4, 8 or 16 bytes,
// the result a new row-major (n, m) tensor. A 0-D or 1-D x comes back as a copy.
PMPP_API at::Tensor padded_transpose(const at::Tensor& x, c10::string_view algorithm = "auto");

// The same into `out`, with the rules of tiled_matmul_out.
PMPP_API at::Tensor& padded_transpose_out(at::Tensor& out, const at::Tensor& x, c10::string_view algorithm = "auto");

// x.t().contiguous() exactly: the view x.t() when that is contiguous already, else padded_transpose(x).
PMPP_API at::Tensor transpose(const at::Tensor& x, c10::string_view algorithm = "auto");

// The switch. On, PyTorch's own mm, addmm, bmm and baddbmm (with out= and in-place forms, and so linear, matmul,
// einsum, their backward passes and compiled code) of this type of device run on pmpp's kernels in the whole process,
// with alpha, beta and bias in the kernel. What pmpp does not take (layouts that are not strided, integers on CUDA,
// empty operands, an `out` that would be resized, ...) goes to PyTorch's kernels, which also raise PyTorch's errors.
// Off, PyTorch's kernels are back exactly as they were. May be called while other threads compute: each call runs one
// way or the other.
//
// Throws c10::Error and changes nothing when it is on (off) already, for a type of device other than CPU and CUDA, and
// when there is no CUDA device that this build has code for.
PMPP_API void replace_mm(bool on, c10::DeviceType device = c10::kCUDA);

// The same for a scope. Scopes are counted and may nest, overlap between threads, and lie within replace_mm(true) and
// replace_mm(false): PyTorch's kernels are back when all are left and the switch is off.
class PMPP_API ReplaceMm {
 public:
  explicit ReplaceMm(c10::DeviceType device = c10::kCUDA);
  ~ReplaceMm();
  ReplaceMm(const ReplaceMm&) = delete;
  ReplaceMm& operator=(const ReplaceMm&) = delete;

 private:
  c10::DeviceType device_;
};

// The library's version. A program that uses the operators by name alone can call it once to keep the library linked.
PMPP_API const char* version();

}  // namespace pmpp
