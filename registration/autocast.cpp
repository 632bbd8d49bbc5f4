// Dispatch keys AutocastCUDA and AutocastCPU: products are cast to the autocast dtype as torch.mm casts them: float16,
// bfloat16 and float32 operands, each of them; float64, complex and integer ones stay as they are. As with torch.mm, an
// out= call has no rule, and transposes need none.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "ops/operators.h"

namespace pmpp::ops {
namespace {

template <c10::DeviceType kDevice, bool kBatched>
at::Tensor matmul_autocast(const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  const c10::impl::ExcludeDispatchKeyGuard guard(at::autocast::get_autocast_dispatch_key_from_device_type(kDevice));
  const at::ScalarType dtype = at::autocast::get_autocast_dtype(kDevice);
  const auto& op = kBatched ? batched_matmul_operator() : matmul_operator();
  return op.call(at::autocast::cached_cast(dtype, a, kDevice), at::autocast::cached_cast(dtype, b, kDevice), algorithm);
}

template <c10::DeviceType kDevice>
void register_for(torch::Library& m) {
  m.impl("tiled_matmul", matmul_autocast<kDevice, false>);
  m.impl("_batched_matmul", matmul_autocast<kDevice, true>);
}

}  // namespace

TORCH_LIBRARY_IMPL(pmpp, AutocastCUDA, m) { register_for<c10::DeviceType::CUDA>(m); }
TORCH_LIBRARY_IMPL(pmpp, AutocastCPU, m) { register_for<c10::DeviceType::CPU>(m); }

}  // namespace pmpp::ops
