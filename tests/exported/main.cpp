// Loads a package that tests/python/test_export.py has made and runs the model in it: x -> padded_transpose(relu(
// tiled_matmul(x, weight))). Arguments: the package, and cpu or cuda. The operators are found because libpmpp.so is
// linked; nothing here names them.
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: exported PACKAGE DEVICE\n");
    return 2;
  }
  try {
    const at::Device device(argv[2]);
    torch::inductor::AOTIModelPackageLoader model(argv[1]);
    // Whole numbers, as the test has set them: results are exact.
    const at::Tensor weight = at::arange(30, at::kFloat).remainder(7).sub(3).view({6, 5}).to(device);
    for (const std::int64_t rows : {2, 7, 64}) {
      const at::Tensor x = at::arange(rows * 6, at::kFloat).remainder(11).sub(5).view({rows, 6}).to(device);
      const std::vector<at::Tensor> results = model.run({x});
      const at::Tensor expected = at::mm(x, weight).relu().t();
      if (results.size() != 1 || !results[0].is_contiguous() || !results[0].equal(expected)) {
        std::fprintf(stderr, "exported: wrong result for %lld rows\n", static_cast<long long>(rows));
        return 1;
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exported: %s\n", error.what());
    return 1;
  }
  std::puts("all good");
  return 0;
}
