// A program that knows PyTorch alone and loads the operators while it runs, as a server loads a plugin.
//
//   plugin path/to/libpmpp.so [cpu|cuda]
//
// The operators are then found by name in PyTorch's dispatcher, like those of any other library.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: plugin path/to/libpmpp.so [cpu|cuda]\n");
    return 2;
  }
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(argc > 2 ? argv[2] : "cpu");
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  if (dispatcher.findSchema({"pmpp::tiled_matmul", ""})) {
    std::fprintf(stderr, "plugin: the operator is there before the library is\n");
    return 1;
  }
  if (dlopen(argv[1], RTLD_NOW) == nullptr) {
    std::fprintf(stderr, "plugin: %s\n", dlerror());
    return 1;
  }
  const auto multiply = dispatcher.findSchemaOrThrow("pmpp::tiled_matmul", "")
                            .typed<at::Tensor(const at::Tensor&, const at::Tensor&, c10::string_view)>();
  const at::Tensor a = at::arange(6, options).view({2, 3});
  const at::Tensor b = at::arange(12, options).view({3, 4});
  const bool same = multiply.call(a, b, "auto").equal(at::mm(a, b));
  std::printf("%s\n", same ? "the same as at::mm" : "NOT the same as at::mm");
  return same ? 0 : 1;
}
