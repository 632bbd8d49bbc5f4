// Dispatch key Autograd: records the backward of both operators and carries forward-mode tangents. Only the gradients
// that are asked for are computed and only the operands that they need are saved. Every step of a backward goes through
// the operators themselves, which makes it differentiable again.
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include <memory>
#include <string>
#include <type_traits>

#include "ops/operators.h"

namespace pmpp::ops {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The operators on one matrix and on a batch of them differ in which one a product or transpose goes through.
at::Tensor multiply(bool batched, const at::Tensor& a, const at::Tensor& b, c10::string_view algorithm) {
  return (batched ? batched_matmul_operator() : matmul_operator()).call(a, b, algorithm);
}

at::Tensor transpose(bool batched, const at::Tensor& x, c10::string_view algorithm) {
  return (batched ? batched_transpose_operator() : transpose_operator()).call(x, algorithm);
}

// d(a @ b): grad_a = grad @ b^H, grad_b = a^H @ grad.
struct TiledMatmulBackward : public Node {
  SavedVariable a, b;  // a is saved for grad_b alone, b for grad_a
  std::string algorithm;
  bool batched = false;

  std::string name() const override { return "TiledMatmulBackward"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    a.reset_data();
    b.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    variable_list result(2);
    const at::Tensor& grad = grads[0];
    if (!grad.defined()) return result;
    if (task_should_compute_output(0)) result[0] = multiply(batched, grad, b.unpack().mT().conj(), algorithm);
    if (task_should_compute_output(1)) result[1] = multiply(batched, a.unpack().mT().conj(), grad, algorithm);
    return result;
  }
};

// The gradient of a transpose is the transpose of the gradient.
struct PaddedTransposeBackward : public Node {
  std::string algorithm;
  bool batched = false;

  std::string name() const override { return "PaddedTransposeBackward"; }

  variable_list apply(variable_list&& grads) override {
    variable_list result(1);
    if (grads[0].defined() && task_should_compute_output(0)) result[0] = transpose(batched, grads[0], algorithm);
    return result;
  }
};

// What PyTorch holds a node by: std::shared_ptr, in later releases c10::intrusive_ptr.
using NodePointer = decltype(torch::autograd::Edge::function);

template <class T>
auto allocate_node() {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<Node>>) {
    // deleteNode takes long graphs apart without recursion. It is found by its argument, as not every release has it.
    return std::shared_ptr<T>(new T(), [](T* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>();
  }
}

template <class T>
auto make_node(torch::autograd::edge_list&& edges) {
  auto node = allocate_node<T>();
  node->set_next_edges(std::move(edges));
  return node;
}

bool has_tangent(const at::Tensor& x) { return torch::autograd::isFwGradDefined(x); }

// Tangents belong to level 0, the only one that PyTorch has; a product of primals would carry them along.
constexpr std::uint64_t kLevel = 0;

void set_tangent(const at::Tensor& result, const at::Tensor& tangent) {
  if (tangent.defined()) result._set_fw_grad(tangent, kLevel, /*is_inplace_op=*/false);
}

template <bool kBatched>
at::Tensor matmul_autograd(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b,
                           c10::string_view algorithm) {
  const auto redispatch = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto& op = kBatched ? batched_matmul_operator() : matmul_operator();
    return op.redispatch(keys & c10::after_autograd_keyset, a, b, algorithm);
  };
  const bool tangents = has_tangent(a) || has_tangent(b);
  const bool record = torch::autograd::compute_requires_grad(a, b);
  if (!record && !tangents) return redispatch();

  decltype(allocate_node<TiledMatmulBackward>()) node;
  if (record) {
    node = make_node<TiledMatmulBackward>(torch::autograd::collect_next_edges(a, b));
    node->algorithm = std::string(algorithm.data(), algorithm.size());
    node->batched = kBatched;
    if (node->should_compute_output(0)) node->b = SavedVariable(b, /*is_output=*/false);
    if (node->should_compute_output(1)) node->a = SavedVariable(a, /*is_output=*/false);
  }
  at::Tensor result = redispatch();
  if (node) torch::autograd::set_history(result, node);
  if (tangents) {
    at::Tensor tangent;
    if (has_tangent(a)) tangent = multiply(kBatched, a._fw_grad(kLevel), b._fw_primal(kLevel), algorithm);
    if (has_tangent(b)) {
      const at::Tensor part = multiply(kBatched, a._fw_primal(kLevel), b._fw_grad(kLevel), algorithm);
      tangent = tangent.defined() ? tangent.add(part) : part;
    }
    set_tangent(result, tangent);
  }
  return result;
}

template <bool kBatched>
at::Tensor transpose_autograd(c10::DispatchKeySet keys, const at::Tensor& x, c10::string_view algorithm) {
  const auto redispatch = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto& op = kBatched ? batched_transpose_operator() : transpose_operator();
    return op.redispatch(keys & c10::after_autograd_keyset, x, algorithm);
  };
  decltype(allocate_node<PaddedTransposeBackward>()) node;
  if (torch::autograd::compute_requires_grad(x)) {
    node = make_node<PaddedTransposeBackward>(torch::autograd::collect_next_edges(x));
    node->algorithm = std::string(algorithm.data(), algorithm.size());
    node->batched = kBatched;
  }
  at::Tensor result = redispatch();
  if (node) torch::autograd::set_history(result, node);
  if (has_tangent(x)) set_tangent(result, transpose(kBatched, x._fw_grad(kLevel), algorithm));
  return result;
}

// out= records nothing, and says so rather than losing a gradient; PyTorch refuses the same calls in the same words.
template <class... Tensors>
void refuse_out(const char* op, const Tensors&... tensors) {
  TORCH_CHECK(!torch::autograd::compute_requires_grad(tensors...), op,
              "(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
              "requires grad.");
  TORCH_CHECK_NOT_IMPLEMENTED(!(has_tangent(tensors) || ...), "Trying to use forward AD with ", op,
                              " that does not support it because it is an out= function");
}

at::Tensor& tiled_matmul_out_autograd(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b,
                                      c10::string_view algorithm, at::Tensor& out) {
  refuse_out("tiled_matmul", a, b, out);
  at::AutoDispatchBelowAutograd guard;
  return matmul_out_operator().redispatch(keys & c10::after_autograd_keyset, a, b, algorithm, out);
}

at::Tensor& padded_transpose_out_autograd(c10::DispatchKeySet keys, const at::Tensor& x, c10::string_view algorithm,
                                          at::Tensor& out) {
  refuse_out("padded_transpose", x, out);
  at::AutoDispatchBelowAutograd guard;
  return transpose_out_operator().redispatch(keys & c10::after_autograd_keyset, x, algorithm, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(pmpp, Autograd, m) {
  m.impl("tiled_matmul", matmul_autograd<false>);
  m.impl("tiled_matmul.out", tiled_matmul_out_autograd);
  m.impl("padded_transpose", transpose_autograd<false>);
  m.impl("padded_transpose.out", padded_transpose_out_autograd);
  m.impl("_batched_matmul", matmul_autograd<true>);
  m.impl("_batched_transpose", transpose_autograd<true>);
}

}  // namespace pmpp::ops
