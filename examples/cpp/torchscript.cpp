// Runs a TorchScript model that uses the operators, as Python has saved it:
//
//   class Layer(torch.nn.Module):
//       def __init__(self):
//           super().__init__()
//           self.weight = torch.nn.Parameter(torch.arange(12.0).view(4, 3))
//       def forward(self, x):
//           return torch.ops.pmpp.padded_transpose(torch.relu(torch.ops.pmpp.tiled_matmul(x, self.weight)))
//
//   torch.jit.script(Layer()).save("layer.pt")
//
//   torchscript layer.pt [cpu|cuda]
//
// The library is linked and nothing of it is named: the model finds the operators by theirs.
#include <torch/script.h>

#include <cstdio>
#include <string>

namespace {

int run(int argc, char** argv) {
  const torch::Device device(argc > 2 ? argv[2] : "cpu");
  torch::jit::Module model = torch::jit::load(argv[1]);
  model.to(device);
  const torch::Tensor x = torch::arange(24, torch::kFloat).view({6, 4}).sub(10).to(device);
  const torch::Tensor y = model.forward({x}).toTensor();
  const torch::Tensor expected = x.mm(model.attr("weight").toTensor()).relu().t();
  const bool same = y.equal(expected) && y.is_contiguous();
  std::printf("%s\n", same ? "the same as torch::mm and t()" : "NOT the same as torch::mm and t()");
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: torchscript MODEL.pt [cpu|cuda]\n");
    return 2;
  }
  const torch::NoGradGuard no_grad;
  try {
    return run(argc, argv);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "torchscript: %s\n", error.what_without_backtrace());
    return 1;
  }
}
