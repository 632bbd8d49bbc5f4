// The switch: kernels for aten::mm, addmm, bmm and baddbmm, their out= and in-place forms, registered for one device
// when it is switched on and taken back when it is switched off. Python's @, linear, matmul and einsum, backward passes
// and code compiled by inductor end in these functions.
//
// A call that is not for us, for whatever reason, goes to the very kernel that PyTorch has for the device (at::cpu::mm,
// at::cuda::mm), past the dispatcher; that kernel also raises PyTorch's own errors. Should it call one of these
// functions itself, the call passes through to PyTorch as well, so nothing recurses.
//
// The functions are registered as compile-time pointers: a thread that has just looked one up may go on to call it
// while another thread switches, and nothing that it needs is freed.
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "csrc/common/int_math.hpp"
#include "ops/device_facts.h"
#include "ops/pmpp.h"
#include "ops/result_memory.h"
#include "ops/stats.h"
#include "ops/tensor_checks.h"
#include "ops/tiled_matmul.h"

#ifdef PMPP_WITH_CUDA
#include <ATen/ops/addmm_cuda_dispatch.h>
#include <ATen/ops/baddbmm_cuda_dispatch.h>
#include <ATen/ops/bmm_cuda_dispatch.h>
#include <ATen/ops/mm_cuda_dispatch.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace pmpp::ops {
namespace {

using at::Scalar;
using at::Tensor;

// PyTorch's own kernels of a device, past the dispatcher.
struct Cpu {
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::CPU;
  static constexpr bool kIsCuda = false;
  static const MatmulBackend& backend() { return kMatmulCpu; }
  static Tensor mm(const Tensor& a, const Tensor& b) { return at::cpu::mm(a, b); }
  static Tensor bmm(const Tensor& a, const Tensor& b) { return at::cpu::bmm(a, b); }
  static Tensor& mm_out(Tensor& out, const Tensor& a, const Tensor& b) { return at::cpu::mm_out(out, a, b); }
  static Tensor& bmm_out(Tensor& out, const Tensor& a, const Tensor& b) { return at::cpu::bmm_out(out, a, b); }
  template <class... Arguments>
  static Tensor addmm(const Arguments&... arguments) {
    return at::cpu::addmm(arguments...);
  }
  template <class... Arguments>
  static Tensor baddbmm(const Arguments&... arguments) {
    return at::cpu::baddbmm(arguments...);
  }
  template <class... Arguments>
  static Tensor& addmm_out(Tensor& out, const Arguments&... arguments) {
    return at::cpu::addmm_out(out, arguments...);
  }
  template <class... Arguments>
  static Tensor& baddbmm_out(Tensor& out, const Arguments&... arguments) {
    return at::cpu::baddbmm_out(out, arguments...);
  }
  template <class... Arguments>
  static Tensor& addmm_(Tensor& c, const Arguments&... arguments) {
    return at::cpu::addmm_(c, arguments...);
  }
  template <class... Arguments>
  static Tensor& baddbmm_(Tensor& c, const Arguments&... arguments) {
    return at::cpu::baddbmm_(c, arguments...);
  }
};

#ifdef PMPP_WITH_CUDA
struct Cuda {
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::CUDA;
  static constexpr bool kIsCuda = true;
  static const MatmulBackend& backend() { return kMatmulCuda; }
  static Tensor mm(const Tensor& a, const Tensor& b) { return at::cuda::mm(a, b); }
  static Tensor bmm(const Tensor& a, const Tensor& b) { return at::cuda::bmm(a, b); }
  static Tensor& mm_out(Tensor& out, const Tensor& a, const Tensor& b) { return at::cuda::mm_out(out, a, b); }
  static Tensor& bmm_out(Tensor& out, const Tensor& a, const Tensor& b) { return at::cuda::bmm_out(out, a, b); }
  template <class... Arguments>
  static Tensor addmm(const Arguments&... arguments) {
    return at::cuda::addmm(arguments...);
  }
  template <class... Arguments>
  static Tensor baddbmm(const Arguments&... arguments) {
    return at::cuda::baddbmm(arguments...);
  }
  template <class... Arguments>
  static Tensor& addmm_out(Tensor& out, const Arguments&... arguments) {
    return at::cuda::addmm_out(out, arguments...);
  }
  template <class... Arguments>
  static Tensor& baddbmm_out(Tensor& out, const Arguments&... arguments) {
    return at::cuda::baddbmm_out(out, arguments...);
  }
  template <class... Arguments>
  static Tensor& addmm_(Tensor& c, const Arguments&... arguments) {
    return at::cuda::addmm_(c, arguments...);
  }
  template <class... Arguments>
  static Tensor& baddbmm_(Tensor& c, const Arguments&... arguments) {
    return at::cuda::baddbmm_(c, arguments...);
  }
};
#endif

// Set while PyTorch's own kernel runs on this thread.
thread_local bool inside_original = false;

class InsideOriginal {
 public:
  InsideOriginal() : outer_(inside_original) { inside_original = true; }
  ~InsideOriginal() { inside_original = outer_; }
  InsideOriginal(const InsideOriginal&) = delete;
  InsideOriginal& operator=(const InsideOriginal&) = delete;

 private:
  bool outer_;
};

// One call of any of the functions: alpha * (a @ b) + beta * c, c null for mm and bmm; `out` null for a new result.
struct Request {
  Replaced function;
  std::int64_t rank;  // 2, or 3 for batches
  const Tensor& a;
  const Tensor& b;
  const Tensor* c = nullptr;
  const Scalar* beta = nullptr;
  const Scalar* alpha = nullptr;
  const Tensor* out = nullptr;
};

bool is_plain(const Tensor& x) {
  return x.defined() && x.layout() == at::kStrided && !x.is_nested() && !x.is_quantized() && !x._is_zerotensor();
}

// Later releases of PyTorch have no named dimensions.
template <class T>
bool has_names(const T& x) {
  if constexpr (requires { x.has_names(); }) {
    return x.has_names();
  } else {
    return false;
  }
}

bool shapes_fit(const Request& r) {
  if (r.a.dim() != r.rank || r.b.dim() != r.rank || r.a.size(-1) != r.b.size(-2)) return false;
  return r.rank == 2 || r.a.size(0) == r.b.size(0);
}

std::array<std::int64_t, 3> result_sizes(const Request& r) { return {r.a.size(0), r.a.size(-2), r.b.size(-1)}; }

at::IntArrayRef result_shape(const Request& r, const std::array<std::int64_t, 3>& sizes) {
  return at::IntArrayRef(sizes).slice(r.rank == 3 ? 0 : 1);
}

bool expandable(const Tensor& c, at::IntArrayRef shape) {
  if (c.dim() > static_cast<std::int64_t>(shape.size())) return false;
  for (std::int64_t i = 1; i <= c.dim(); ++i) {
    if (c.size(-i) != 1 && c.size(-i) != shape[shape.size() - i]) return false;
  }
  return true;
}

// Whether a factor means the same to us as to PyTorch, which refuses some of those that a dtype cannot hold.
bool usable(const Scalar& factor, at::ScalarType dtype) {
  if (factor.isComplex()) return c10::isComplexType(dtype);
  if (!c10::isIntegralType(dtype, /*includeBool=*/false)) return true;
  if (!factor.isIntegral(/*includeBool=*/true)) return false;
  const std::int64_t value = factor.toLong();
  return dtype == at::kByte ? value >= 0 && value <= 255 : value >= -128 && value <= 127;
}

bool is_zero(const Scalar& factor) { return factor.equal(0); }

// Addresses of the first byte and past the last.
std::pair<std::uintptr_t, std::uintptr_t> extent(const Tensor& x) {
  const auto begin = reinterpret_cast<std::uintptr_t>(x.const_data_ptr());
  std::uintptr_t last = 0;
  for (std::int64_t i = 0; i < x.dim(); ++i) last += static_cast<std::uintptr_t>((x.size(i) - 1) * x.stride(i));
  return {begin, begin + (last + 1) * x.element_size()};
}

bool may_share_memory(const Tensor& x, const Tensor& y) {
  if (x.dim() <= 2 && y.dim() <= 2) return share_memory(x, y);
  const auto [x_begin, x_end] = extent(x);
  const auto [y_begin, y_end] = extent(y);
  return x_begin < y_end && y_begin < x_end;
}

// Whether no two elements share an address: each step is longer than all that the smaller ones span.
bool elements_distinct(const Tensor& x) {
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    if (x.size(i) > 1) steps.emplace_back(x.stride(i), x.size(i));
  }
  std::sort(steps.begin(), steps.end());
  std::int64_t span = 0;
  for (const auto& [stride, size] : steps) {
    if (stride <= span) return false;
    span += (size - 1) * stride;
  }
  return true;
}

bool is_same_view(const Tensor& x, const Tensor& y) {
  return x.const_data_ptr() == y.const_data_ptr() && x.sizes() == y.sizes() && x.strides() == y.strides();
}

// Whether the result can be written straight to `out`, which PyTorch resizes or refuses otherwise. An addend may be
// `out` itself: each element is read before it is written.
bool writable(const Request& r, at::IntArrayRef shape) {
  const Tensor& out = *r.out;
  if (!is_plain(out) || out.device() != r.a.device() || out.scalar_type() != r.a.scalar_type()) return false;
  if (out.sizes() != shape || out.is_conj() || out.is_neg() || has_names(out)) return false;
  if (!elements_distinct(out) || may_share_memory(out, r.a) || may_share_memory(out, r.b)) return false;
  return r.c == nullptr || is_same_view(out, *r.c) || !may_share_memory(out, *r.c);
}

#ifdef PMPP_WITH_CUDA
// Kernels read whole elements; PyTorch's own allocations are always aligned, memory of others may not be.
bool aligned(const Tensor& x) {
  const std::uintptr_t size = x.element_size();
  return is_aligned(x.const_data_ptr(), x.is_complex() ? size / 2 : size);
}
#endif

// Why the call is PyTorch's; none when it is ours.
template <class Device>
std::optional<Fallback> obstacle(const Request& r) {
  if (!is_plain(r.a) || !is_plain(r.b) || (r.c != nullptr && !is_plain(*r.c))) return Fallback::kLayout;
  if (has_names(r.a) || has_names(r.b) || (r.c != nullptr && has_names(*r.c))) return Fallback::kNames;
  if (!shapes_fit(r)) return Fallback::kShape;
  const at::ScalarType dtype = r.a.scalar_type();
  if (r.b.device() != r.a.device() || (r.c != nullptr && r.c->device() != r.a.device())) return Fallback::kDevice;
  if (r.b.scalar_type() != dtype || (r.c != nullptr && r.c->scalar_type() != dtype)) return Fallback::kDtype;
  // PyTorch refuses integers on CUDA, and so does the switch.
  if (!matmul_dtype(dtype) || (Device::kIsCuda && c10::isIntegralType(dtype, /*includeBool=*/true))) {
    return Fallback::kDtype;
  }
  if (r.a.numel() == 0 || r.b.numel() == 0) return Fallback::kEmpty;
  const std::array<std::int64_t, 3> sizes = result_sizes(r);
  const at::IntArrayRef shape = result_shape(r, sizes);
  if (r.c != nullptr) {
    if (!expandable(*r.c, shape)) return Fallback::kShape;
    // With alpha 0 PyTorch does not read the operands, whose NaN would come through here.
    if (!usable(*r.alpha, dtype) || !usable(*r.beta, dtype) || is_zero(*r.alpha)) return Fallback::kScalar;
  }
#ifdef PMPP_WITH_CUDA
  if constexpr (Device::kIsCuda) {
    if (!cuda_device_has_kernels(r.a.device())) return Fallback::kDevice;
    if (!aligned(r.a) || !aligned(r.b) || (r.c != nullptr && !aligned(*r.c))) return Fallback::kLayout;
    if (r.out != nullptr && r.out->device() == r.a.device() && !aligned(*r.out)) return Fallback::kLayout;
  }
#endif
  if (r.out != nullptr && !writable(r, shape)) return Fallback::kOut;
  return std::nullopt;
}

matmul::Scalar to_scalar(const Scalar& factor, at::ScalarType dtype) {
  if (c10::isIntegralType(dtype, /*includeBool=*/false)) return matmul::scalar(factor.toLong());
  const auto value = factor.toComplexDouble();
  return {value.real(), value.imag(), 0};
}

// conj() and the sign of an imaginary part are bits of a view that kernels never see.
Tensor resolved(const Tensor& x) { return x.resolve_conj().resolve_neg(); }

template <class Device>
void multiply_into(const Request& r, const Tensor& out) {
  const Tensor a = resolved(r.a);
  const Tensor b = resolved(r.b);
  Tensor c;
  Addend addend;
  if (r.c != nullptr) {
    c = resolved(*r.c);
    addend = {&c, to_scalar(*r.alpha, a.scalar_type()), to_scalar(*r.beta, a.scalar_type())};
  }
  MatmulCall call = make_matmul_call(Device::backend(), a, b, "auto", addend);
  if (r.out == nullptr) {
    run_matmul(Device::backend(), call, out);
  } else {
    run_matmul_out(Device::backend(), call, a, b, out);
  }
  count_taken(r.function, Device::kIsCuda);
}

// Whether the call is PyTorch's; counts it if so.
template <class Device>
bool declined(const Request& r) {
  if (inside_original) return true;
  const std::optional<Fallback> reason = obstacle<Device>(r);
  if (reason) count_fallback(r.function, Device::kIsCuda, *reason);
  return reason.has_value();
}

template <class Device, class Original>
Tensor compute(const Request& r, const Original& original) {
  if (declined<Device>(r)) {
    const InsideOriginal guard;
    return original();
  }
  const std::array<std::int64_t, 3> sizes = result_sizes(r);
  const Tensor result = empty_result(result_shape(r, sizes), r.a.options());
  multiply_into<Device>(r, result);
  return result;
}

template <class Device, class Original>
Tensor& compute_out(Request r, Tensor& out, const Original& original) {
  r.out = &out;
  if (declined<Device>(r)) {
    const InsideOriginal guard;
    return original();
  }
  multiply_into<Device>(r, out);
  return out;
}

template <class Device>
Tensor mm(const Tensor& a, const Tensor& b) {
  return compute<Device>({Replaced::kMm, 2, a, b}, [&] { return Device::mm(a, b); });
}

template <class Device>
Tensor& mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  return compute_out<Device>({Replaced::kMm, 2, a, b}, out, [&]() -> Tensor& { return Device::mm_out(out, a, b); });
}

template <class Device>
Tensor bmm(const Tensor& a, const Tensor& b) {
  return compute<Device>({Replaced::kBmm, 3, a, b}, [&] { return Device::bmm(a, b); });
}

template <class Device>
Tensor& bmm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  return compute_out<Device>({Replaced::kBmm, 3, a, b}, out, [&]() -> Tensor& { return Device::bmm_out(out, a, b); });
}

template <class Device>
Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  return compute<Device>({Replaced::kAddmm, 2, a, b, &c, &beta, &alpha},
                         [&] { return Device::addmm(c, a, b, beta, alpha); });
}

template <class Device>
Tensor& addmm_out(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha,
                  Tensor& out) {
  return compute_out<Device>({Replaced::kAddmm, 2, a, b, &c, &beta, &alpha}, out,
                             [&]() -> Tensor& { return Device::addmm_out(out, c, a, b, beta, alpha); });
}

template <class Device>
Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  return compute<Device>({Replaced::kBaddbmm, 3, a, b, &c, &beta, &alpha},
                         [&] { return Device::baddbmm(c, a, b, beta, alpha); });
}

template <class Device>
Tensor& baddbmm_out(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha,
                    Tensor& out) {
  return compute_out<Device>({Replaced::kBaddbmm, 3, a, b, &c, &beta, &alpha}, out,
                             [&]() -> Tensor& { return Device::baddbmm_out(out, c, a, b, beta, alpha); });
}

template <class Device>
Tensor& addmm_(Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  return compute_out<Device>({Replaced::kAddmm, 2, a, b, &c, &beta, &alpha}, c,
                             [&]() -> Tensor& { return Device::addmm_(c, a, b, beta, alpha); });
}

template <class Device>
Tensor& baddbmm_(Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  return compute_out<Device>({Replaced::kBaddbmm, 3, a, b, &c, &beta, &alpha}, c,
                             [&]() -> Tensor& { return Device::baddbmm_(c, a, b, beta, alpha); });
}

// Drops PyTorch's warning that a kernel is overridden, which is what was asked for.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

template <class Device>
std::unique_ptr<torch::Library> install() {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  auto library =
      std::make_unique<torch::Library>(torch::Library::IMPL, "aten", Device::kKey, __FILE__, std::uint32_t{__LINE__});
  library->impl("mm", TORCH_FN(mm<Device>));
  library->impl("mm.out", TORCH_FN(mm_out<Device>));
  library->impl("addmm", TORCH_FN(addmm<Device>));
  library->impl("addmm.out", TORCH_FN(addmm_out<Device>));
  library->impl("addmm_", TORCH_FN(addmm_<Device>));
  library->impl("bmm", TORCH_FN(bmm<Device>));
  library->impl("bmm.out", TORCH_FN(bmm_out<Device>));
  library->impl("baddbmm", TORCH_FN(baddbmm<Device>));
  library->impl("baddbmm.out", TORCH_FN(baddbmm_out<Device>));
  library->impl("baddbmm_", TORCH_FN(baddbmm_<Device>));
  return library;
}

constexpr const char* kUnchanged = "; nothing was changed";

std::unique_ptr<torch::Library> install_for(c10::DeviceType device) {
  if (device == c10::kCPU) return install<Cpu>();
#ifdef PMPP_WITH_CUDA
  const int count = c10::cuda::device_count();
  TORCH_CHECK(count > 0, "replace_mm: PyTorch sees no CUDA device", kUnchanged);
  bool any = false;
  for (int index = 0; index < count; ++index) {
    any = any || cuda_device_has_kernels({c10::kCUDA, static_cast<c10::DeviceIndex>(index)});
  }
  TORCH_CHECK(any, "replace_mm: this build of pmpp has code for ", PMPP_CUDA_ARCHS,
              ", and no CUDA device here can run it", kUnchanged);
  return install<Cuda>();
#else
  TORCH_CHECK(false, "replace_mm: cuda was asked for, but the library was built for the CPU alone", kUnchanged);
#endif
}

// What keeps the kernels of one device in place: the pair of replace_mm(true) and replace_mm(false), and every scope.
struct Switch {
  bool on = false;
  std::int64_t scopes = 0;
  std::unique_ptr<torch::Library> library;

  void update(c10::DeviceType device) {
    const bool wanted = on || scopes > 0;
    if (wanted && library == nullptr) library = install_for(device);
    if (!wanted) library.reset();
  }
};

struct Switches {
  std::mutex mutex;
  Switch cpu, cuda;

  // Never destroyed: at the process's end the dispatcher may be gone.
  static Switches& get() {
    static Switches& all = *new Switches;
    return all;
  }

  Switch& of(c10::DeviceType device) {
    TORCH_CHECK(device == c10::kCPU || device == c10::kCUDA, "replace_mm: no kernels for devices of type ",
                c10::DeviceTypeName(device, /*lower_case=*/true), "; expected cpu or cuda", kUnchanged);
    return device == c10::kCPU ? cpu : cuda;
  }
};

void enter(c10::DeviceType device) {
  Switches& all = Switches::get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Switch& side = all.of(device);
  ++side.scopes;
  try {
    side.update(device);
  } catch (...) {
    --side.scopes;
    throw;
  }
}

void leave(c10::DeviceType device) {
  Switches& all = Switches::get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Switch& side = all.of(device);
  --side.scopes;
  side.update(device);
}

void change(c10::Device device, c10::string_view what) {
  if (what == "enter") return enter(device.type());
  if (what == "leave") return leave(device.type());
  TORCH_CHECK_VALUE(what == "on" || what == "off", "replace_mm: unknown change '", what,
                    "'; expected on, off, enter or leave");
  replace_mm(what == "on", device.type());
}

}  // namespace

TORCH_LIBRARY_IMPL(pmpp, CatchAll, m) { m.impl("_replace_mm", change); }

}  // namespace pmpp::ops

namespace pmpp {

void replace_mm(bool on, c10::DeviceType device) {
  ops::Switches& all = ops::Switches::get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  ops::Switch& side = all.of(device);
  TORCH_CHECK(side.on != on, "replace_mm: ", on ? "already on" : "not on", " for ",
              c10::DeviceTypeName(device, /*lower_case=*/true), ops::kUnchanged);
  side.on = on;
  try {
    side.update(device);
  } catch (...) {
    side.on = !on;
    throw;
  }
}

ReplaceMm::ReplaceMm(c10::DeviceType device) : device_(device) { ops::enter(device); }

ReplaceMm::~ReplaceMm() { ops::leave(device_); }

}  // namespace pmpp
