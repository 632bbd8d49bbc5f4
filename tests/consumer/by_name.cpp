// Calls an operator through PyTorch's dispatcher alone, as a program does that loads an exported model.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdio>

int main() {
  const auto handle = c10::Dispatcher::singleton().findSchema({"pmpp::tiled_matmul", ""});
  if (!handle) {
    std::fprintf(stderr, "by_name: pmpp::tiled_matmul is not registered\n");
    return 1;
  }
  const at::Tensor a = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor b = at::arange(12, at::kFloat).view({3, 4});
  const at::Tensor c =
      handle->typed<at::Tensor(const at::Tensor&, const at::Tensor&, c10::string_view)>().call(a, b, "auto");
  if (!c.equal(at::mm(a, b))) {
    std::fprintf(stderr, "by_name: wrong result\n");
    return 1;
  }
  return 0;
}
