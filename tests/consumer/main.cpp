// Uses every function of pmpp.h from a LibTorch program without Python, on the CPU and, where there is one, on a GPU.
#include <pmpp/pmpp.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

#ifdef PMPP_CONSUMER_CUDA
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

int failures = 0;

void check(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::cerr << "FAILED: " << what << "\n";
}

// Runs `call`, which must throw an `Error` whose text contains `text`.
template <class Error, class Call>
void check_error(Call call, const std::string& text, const std::string& what) {
  try {
    call();
  } catch (const Error& error) {
    const std::string found = error.what_without_backtrace();
    check(found.find(text) != std::string::npos, what + ": expected \"" + text + "\" in \"" + found + "\"");
    return;
  } catch (const std::exception& error) {
    check(false, what + ": another kind of exception: " + error.what());
    return;
  }
  check(false, what + ": no error");
}

// Whole numbers: every product and sum is exact, so results must match to the last bit.
torch::Tensor whole(at::IntArrayRef shape, torch::TensorOptions options) {
  return torch::randint(-8, 9, shape, torch::kLong).to(options);
}

void results(torch::Device device) {
  const std::string on = " on " + device.str();
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    const auto options = torch::TensorOptions().device(device).dtype(dtype);
    const std::string name = std::string(c10::toString(dtype)) + on;
    const auto a = whole({37, 53}, options);
    const auto b = whole({29, 53}, options).t();
    const auto expected = torch::mm(a.to(torch::kDouble), b.to(torch::kDouble)).to(dtype);

    const auto c = pmpp::tiled_matmul(a, b);
    check(c.equal(expected), "tiled_matmul " + name);
    check(c.is_contiguous() && c.sizes() == at::IntArrayRef({37, 29}), "tiled_matmul's shape, " + name);
    check(pmpp::tiled_matmul(a, b, "naive").equal(expected), "tiled_matmul naive " + name);

    // out keeps its strides: here a matrix stored by columns.
    auto out = torch::full({29, 37}, -1, options).t();
    auto& returned = pmpp::tiled_matmul_out(out, a, b);
    check(&returned == &out && out.equal(expected) && out.stride(0) == 1, "tiled_matmul_out " + name);

    const auto t = pmpp::padded_transpose(a);
    check(t.equal(a.t()) && t.is_contiguous() && !t.is_alias_of(a), "padded_transpose " + name);
    auto t_out = torch::empty({53, 37}, options);
    pmpp::padded_transpose_out(t_out, a);
    check(t_out.equal(a.t()), "padded_transpose_out " + name);
    check(pmpp::transpose(a).equal(a.t()), "transpose " + name);
    check(pmpp::transpose(b).is_alias_of(b), "transpose returns the view where that is contiguous, " + name);
  }
  const auto flags = torch::rand({33, 65}, device) < 0.5;
  check(pmpp::padded_transpose(flags).equal(flags.t()), "padded_transpose of bool" + on);
  const auto ints = whole({17, 19}, torch::TensorOptions().device(device).dtype(torch::kInt));
  check(pmpp::tiled_matmul(ints, ints.t()).cpu().equal(torch::mm(ints.cpu(), ints.cpu().t())),
        "tiled_matmul of int" + on);
}

void gradients(torch::Device device) {
  const std::string on = " on " + device.str();
  const auto options = torch::TensorOptions().device(device).dtype(torch::kDouble);
  const auto a = whole({5, 7}, options).requires_grad_();
  const auto b = whole({7, 3}, options).requires_grad_();
  const auto weight = whole({3, 5}, options);

  (pmpp::padded_transpose(pmpp::tiled_matmul(a, b)) * weight).sum().backward();
  check(a.grad().equal(torch::mm(weight.t(), b.detach().t())), "gradient of a" + on);
  check(b.grad().equal(torch::mm(a.detach().t(), weight.t())), "gradient of b" + on);

  // The second derivative of sum((a @ b)^2) through the operator's own backward.
  const auto square = pmpp::tiled_matmul(a, b).pow(2).sum();
  const auto first = torch::autograd::grad({square}, {a}, {}, true, true)[0];
  const auto second = torch::autograd::grad({first.sum()}, {b})[0];
  const auto a_plain = a.detach().clone().requires_grad_();
  const auto b_plain = b.detach().clone().requires_grad_();
  const auto first_plain =
      torch::autograd::grad({torch::mm(a_plain, b_plain).pow(2).sum()}, {a_plain}, {}, true, true)[0];
  const auto second_plain = torch::autograd::grad({first_plain.sum()}, {b_plain})[0];
  check(second.equal(second_plain), "second derivative" + on);

  const torch::NoGradGuard no_grad;
  check(!pmpp::tiled_matmul(a, b).requires_grad(), "nothing is recorded under NoGradGuard" + on);
}

// PyTorch's own functions, while the switch is on and after it.
void replaced(torch::Device device) {
  const std::string on = " on " + device.str();
  const auto options = torch::TensorOptions().device(device).dtype(torch::kDouble);
  const auto a = whole({5, 7}, options);
  const auto b = whole({7, 3}, options);
  const auto bias = whole({3}, options);
  const auto x = whole({4, 5, 7}, options);
  const auto y = whole({4, 7, 3}, options);
  const auto compute = [&] {
    const auto leaf = a.detach().requires_grad_();
    torch::addmm(bias, leaf, b, /*beta=*/2, /*alpha=*/3).pow(2).sum().backward();
    return std::vector<torch::Tensor>{torch::mm(a, b), torch::linear(a, b.t(), bias), torch::bmm(x, y),
                                      torch::baddbmm(bias, x, y), leaf.grad()};
  };
  const auto expected = compute();
  const auto check_all = [&](const std::string& when) {
    const auto found = compute();
    for (std::size_t i = 0; i < found.size(); ++i) {
      check(found[i].equal(expected[i]), "replaced " + std::to_string(i) + " " + when + on);
    }
  };
  pmpp::replace_mm(true, device.type());
  check_all("while on");
  const std::string name = device.is_cuda() ? "cuda" : "cpu";
  check_error<c10::Error>([&] { pmpp::replace_mm(true, device.type()); },
                          "replace_mm: already on for " + name + "; nothing was changed", "on twice" + on);
  {
    const pmpp::ReplaceMm scope(device.type());
    pmpp::replace_mm(false, device.type());
    check_all("in a scope");
  }
  check_all("after it");
  check_error<c10::Error>([&] { pmpp::replace_mm(false, device.type()); },
                          "replace_mm: not on for " + name + "; nothing was changed", "off without on" + on);
  check_error<c10::Error>([&] { pmpp::replace_mm(true, c10::kMeta); },
                          "replace_mm: no kernels for devices of type meta", "another type of device");
}

void errors(torch::Device device) {
  const std::string on = " on " + device.str();
  const auto options = torch::TensorOptions().device(device);
  const auto a = torch::ones({2, 3}, options);
  const auto b = torch::ones({3, 2}, options);
  const auto vector = torch::ones({3}, options);

  check_error<c10::Error>([&] { pmpp::tiled_matmul(vector, b); },
                          "tiled_matmul: a must be a matrix, but it has 1 dimension(s) (shape [3])",
                          "1-D operand" + on);
  check_error<c10::Error>(
      [&] {
        pmpp::tiled_matmul(a, torch::ones({4, 5}, options));
      },
      "tiled_matmul: a and b shapes cannot be multiplied (2x3 and 4x5)", "shapes" + on);
  check_error<c10::Error>([&] { pmpp::tiled_matmul(a, b.to(torch::kDouble)); },
                          "tiled_matmul: expected a and b to have the same dtype, but got a Float and b Double",
                          "mixed dtypes" + on);
  check_error<c10::NotImplementedError>([&] { pmpp::tiled_matmul(a.to(torch::kBool), b.to(torch::kBool)); },
                                        "\"tiled_matmul\" not implemented for 'Bool'", "bool" + on);
  check_error<c10::ValueError>([&] { pmpp::tiled_matmul(a, b, "fast"); },
                               "tiled_matmul: unknown algorithm 'fast'; expected one of auto, naive",
                               "unknown algorithm" + on);
  const char* elsewhere = device.is_cuda() ? "blocked" : "tiled";
  check_error<c10::NotImplementedError>(
      [&] { pmpp::tiled_matmul(a, b, elsewhere); },
      std::string("tiled_matmul: algorithm '") + elsewhere + "' is not available for Float",
      "algorithm of another device" + on);
  auto wrong_dtype = torch::empty({2, 2}, options.dtype(torch::kDouble));
  check_error<c10::Error>([&] { pmpp::tiled_matmul_out(wrong_dtype, a, b); },
                          "tiled_matmul: expected out to have dtype Float, but got Double", "out dtype" + on);
  auto square = torch::ones({2, 2}, options);
  check_error<c10::Error>([&] { pmpp::tiled_matmul_out(square, square, square); },
                          "tiled_matmul: out overlaps a in memory", "out is an operand" + on);
  check_error<c10::Error>(
      [&] {
        pmpp::padded_transpose(torch::ones({2, 3, 4}, options));
      },
      "padded_transpose: expected a tensor with at most 2 dimensions, but x has 3 (shape [2, 3, 4])",
      "3-D transpose" + on);
  if (device.is_cuda()) {
    check_error<c10::Error>([&] { pmpp::tiled_matmul(a, b.cpu()); },
                            "tiled_matmul: expected all tensors to be on the same device, but a is on " +
                                a.device().str() + " and b is on cpu",
                            "two devices" + on);
  }

  // After all these the process and the device go on working.
  check(pmpp::tiled_matmul(a, b).equal(torch::full({2, 2}, 3.0, options)), "a product after the errors" + on);
  check(pmpp::padded_transpose(a).equal(b), "a transpose after the errors" + on);
}

}  // namespace

int main() {
  std::cout << "pmpp " << pmpp::version() << ", torch " << TORCH_VERSION << "\n";
  std::vector<torch::Device> devices = {torch::kCPU};
  // A library that was built for the CPU alone has no CUDA operators, whatever the machine has.
  if (kHasCuda && torch::cuda::is_available()) devices.emplace_back(torch::kCUDA, 0);
  for (const auto& device : devices) {
    std::cout << "checking " << device << "\n";
    torch::manual_seed(1);
    try {
      results(device);
      gradients(device);
      replaced(device);
      errors(device);
    } catch (const std::exception& error) {
      check(false, std::string("unexpected exception on ") + device.str() + ": " + error.what());
    }
  }
  std::cout << (failures == 0 ? "all good\n" : "failed\n");
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
