// Training of a small network written with LibTorch alone, once on PyTorch's kernels and once with the switch on.
//
//   train [cpu|cuda] [STEPS]
//
// Exit code 1 if the two trainings part by more than the rounding of float32.
#include <pmpp/pmpp.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace {

struct Training {
  std::vector<double> losses;
  double seconds = 0;
};

Training train(torch::Device device, int steps) {
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(64, 512), torch::nn::GELU(), torch::nn::Linear(512, 512),
                              torch::nn::GELU(), torch::nn::Linear(512, 1));
  model->to(device);
  const torch::Tensor x = torch::randn({1000, 64}).to(device);
  const torch::Tensor y = x.slice(1, 0, 4).sin().sum(1, /*keepdim=*/true);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));
  Training result;
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(model->forward(x), y);
    loss.backward();
    optimizer.step();
    result.losses.push_back(loss.item<double>());  // waits for the device
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

int run(torch::Device device, int steps) {
  train(device, 2);  // one-time work is nobody's time
  const Training theirs = train(device, steps);
  std::optional<Training> ours;
  {
    const pmpp::ReplaceMm replaced(device.type());
    train(device, 2);
    ours = train(device, steps);
  }
  double apart = 0;
  for (int step = 0; step < steps; ++step) {
    apart = std::max(apart, std::abs(ours->losses[step] - theirs.losses[step]) / theirs.losses[step]);
  }
  std::printf("pmpp %s on %s, %d steps\n", pmpp::version(), device.str().c_str(), steps);
  std::printf("PyTorch %8.3f ms a step   loss %.5f -> %.5f\n", 1e3 * theirs.seconds / steps, theirs.losses.front(),
              theirs.losses.back());
  std::printf("pmpp    %8.3f ms a step   loss %.5f -> %.5f\n", 1e3 * ours->seconds / steps, ours->losses.front(),
              ours->losses.back());
  const bool same = apart < 1e-3 && ours->losses.back() < ours->losses.front();
  std::printf("largest relative distance of the losses %.1e: %s\n", apart, same ? "the same" : "NOT the same");
  return same ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : torch::cuda::is_available() ? "cuda" : "cpu";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 20;
  if ((device != "cpu" && device != "cuda") || steps < 1) {
    std::fprintf(stderr, "usage: train [cpu|cuda] [STEPS]\n");
    return 2;
  }
  try {
    return run(torch::Device(device), steps);
  } catch (const c10::Error& error) {  // PyTorch's own, whose what() carries a stack trace
    std::fprintf(stderr, "train: %s\n", error.what_without_backtrace());
    return 1;
  }
}
