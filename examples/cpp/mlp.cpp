// Forward pass of a small network, once with at::mm and once with pmpp::tiled_matmul: same numbers, both timed.
//
//   mlp [cpu|cuda] [BATCH]
//
// Exit code 1 if the two results are not the same up to the rounding of float32.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <pmpp/pmpp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace {

using Multiply = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

struct Layer {
  at::Tensor weight;  // (inputs, outputs)
  at::Tensor bias;    // (outputs)
};

std::vector<Layer> make_layers(const std::vector<std::int64_t>& widths, const at::TensorOptions& options) {
  std::vector<Layer> layers;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(widths[i]));
    layers.push_back({at::randn({widths[i], widths[i + 1]}, options) * scale, at::randn({widths[i + 1]}, options)});
  }
  return layers;
}

at::Tensor forward(const std::vector<Layer>& layers, at::Tensor x, const Multiply& multiply) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = multiply(x, layers[i].weight) + layers[i].bias;
    if (i + 1 < layers.size()) x = at::relu(x);
  }
  return x;
}

// Seconds of one forward pass. Reading one number back waits for the device, whichever it is.
double time_once(const std::vector<Layer>& layers, const at::Tensor& x, const Multiply& multiply) {
  const auto start = std::chrono::steady_clock::now();
  forward(layers, x, multiply).sum().item<float>();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int run(const std::string& device, std::int64_t batch) {
  at::globalContext().setAllowTF32CuBLAS(false);
  at::manual_seed(0);
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  const auto layers = make_layers({256, 512, 512, 10}, options);
  const at::Tensor x = at::randn({batch, 256}, options);

  const Multiply theirs = [](const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b); };
  const Multiply ours = [](const at::Tensor& a, const at::Tensor& b) { return pmpp::tiled_matmul(a, b); };

  const at::NoGradGuard no_grad;
  const at::Tensor expected = forward(layers, x, theirs);
  const at::Tensor result = forward(layers, x, ours);
  const double error = ((result - expected).norm() / expected.norm()).item<double>();

  std::vector<double> their_times, our_times;
  for (int i = 0; i < 11; ++i) {  // in turn, so that a drifting clock hits both sides
    their_times.push_back(time_once(layers, x, theirs));
    our_times.push_back(time_once(layers, x, ours));
  }
  const double their_ms = 1e3 * median(their_times);
  const double our_ms = 1e3 * median(our_times);
  std::printf("pmpp %s on %s, batch %lld\n", pmpp::version(), device.c_str(), static_cast<long long>(batch));
  std::printf("at::mm             %9.3f ms\n", their_ms);
  std::printf("pmpp::tiled_matmul %9.3f ms   ratio %.2f (above 1: ours is faster)\n", our_ms, their_ms / our_ms);
  std::printf("difference         %9.1e    %s\n", error, error < 1e-5 ? "the same" : "NOT the same");
  return error < 1e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : at::hasCUDA() ? "cuda" : "cpu";
  const long long batch = argc > 2 ? std::atoll(argv[2]) : 1000;
  if ((device != "cpu" && device != "cuda") || batch < 1) {
    std::fprintf(stderr, "usage: mlp [cpu|cuda] [BATCH]\n");
    return 2;
  }
  try {
    return run(device, batch);
  } catch (const c10::Error& error) {  // PyTorch's own, whose what() carries a stack trace
    std::fprintf(stderr, "mlp: %s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mlp: %s\n", error.what());
    return 1;
  }
}
