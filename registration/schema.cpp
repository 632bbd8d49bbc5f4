// The operators' definitions, and nothing else.
#include <torch/library.h>

TORCH_LIBRARY(pmpp, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  m.def("tiled_matmul(Tensor a, Tensor b, *, str algorithm=\"auto\") -> Tensor", tags);
  m.def("tiled_matmul.out(Tensor a, Tensor b, *, str algorithm=\"auto\", Tensor(a!) out) -> Tensor(a!)", tags);
  m.def("padded_transpose(Tensor x, *, str algorithm=\"auto\") -> Tensor", tags);
  m.def("padded_transpose.out(Tensor x, *, str algorithm=\"auto\", Tensor(a!) out) -> Tensor(a!)", tags);

  // The same for three-dimensional batches of matrices, one launch for all: what vmap calls.
  m.def("_batched_matmul(Tensor a, Tensor b, *, str algorithm=\"auto\") -> Tensor", tags);
  m.def("_batched_transpose(Tensor x, *, str algorithm=\"auto\") -> Tensor", tags);

  // What would run, without running it: for tests, benchmarks and `python -m torch_pmpp`.
  m.def("_algorithms(str op, Device device, ScalarType dtype) -> str[]");
  m.def("_tiled_matmul_plan(Tensor a, Tensor b, *, str algorithm=\"auto\") -> str");
  m.def("_tiled_matmul_plans(Tensor a, Tensor b, str algorithm, *, Tensor(a!) out) -> str[]");
  m.def(
      "_tiled_matmul_with_plan(Tensor a, Tensor b, str algorithm, int index, *, Tensor? c=None, Scalar alpha=1, "
      "Scalar beta=0, Tensor(a!) out) -> ()");
  m.def("_padded_transpose_plan(Tensor x, *, str algorithm=\"auto\") -> str");

  // The same for a GPU that is described by its facts and need not be there: `python -m torch_pmpp explain`.
  m.def("_algorithms_on(str op, ScalarType dtype, Dict(str, int) device) -> str[]");
  m.def(
      "_plan_on(str op, int[] sizes, ScalarType dtype, str layout, str algorithm, Dict(str, int) device) -> (str, "
      "Dict(str, int))");

  // What did run, and the switch that makes PyTorch's own functions run here.
  m.def("_stats() -> Dict(str, int)");
  m.def("_reset_stats() -> ()");
  m.def("_replace_mm(Device device, str change) -> ()");
}
