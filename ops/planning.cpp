#include "ops/planning.h"

#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "ops/padded_transpose.h"
#include "ops/tiled_matmul.h"

namespace pmpp::ops {
namespace {

using Facts = c10::Dict<std::string, std::int64_t>;

PlanFacts none() { return {std::string(), Facts()}; }

DeviceFacts device_facts(const Facts& given) {
  const auto field = [&](const char* name) {
    const auto found = given.find(name);
    TORCH_CHECK_VALUE(found != given.end() && found->value() >= 0 && found->value() < (std::int64_t{1} << 31),
                      "plan_on: expected the device to have a ", name, " that is a number below 2^31");
    return static_cast<int>(found->value());
  };
  DeviceFacts facts;
  facts.is_cuda = true;
  facts.compute_capability = field("compute_capability");
  facts.sm_count = field("sm_count");
  facts.shared_memory_per_block = field("shared_memory_per_block");
  facts.shared_memory_opt_in = field("shared_memory_opt_in");
  facts.max_threads_per_block = field("max_threads_per_block");
  return facts;
}

void check_sizes(const std::vector<std::int64_t>& sizes, std::size_t count) {
  TORCH_CHECK_VALUE(sizes.size() == count, "plan_on: expected ", count, " sizes, but got ", sizes.size());
  for (const std::int64_t size : sizes) TORCH_CHECK_VALUE(size > 0, "plan_on: expected sizes above 0, but got ", size);
}

void insert_launch(Facts& facts, const std::int64_t (&grid)[3], const int (&block)[2]) {
  facts.insert("grid_x", grid[0]);
  facts.insert("grid_y", grid[1]);
  facts.insert("grid_z", grid[2]);
  facts.insert("block_x", block[0]);
  facts.insert("block_y", block[1]);
}

PlanFacts matmul_plan(const std::vector<std::int64_t>& sizes, at::ScalarType dtype, c10::string_view layout,
                      c10::string_view algorithm, const DeviceFacts& device) {
  check_sizes(sizes, 3);
  const auto asked = matmul::parse_algorithm({algorithm.data(), algorithm.size()});
  TORCH_CHECK_VALUE(asked.has_value(), "plan_on: unknown algorithm '", algorithm, "' of tiled_matmul");
  TORCH_CHECK_VALUE(layout == "NN" || layout == "NT" || layout == "TN" || layout == "TT",
                    "plan_on: expected a layout NN, NT, TN or TT, but got '", layout, "'");
  const std::optional<DType> type = matmul_dtype(dtype);
  if (!type.has_value()) return none();
  matmul::Problem problem;
  problem.dtype = *type;
  if (*type == DType::kFloat32) problem.precision = float32_precision(device);
  problem.m = sizes[0];
  problem.n = sizes[1];
  problem.k = sizes[2];
  problem.a = {nullptr, layout[0] == 'N' ? problem.k : 1, layout[0] == 'N' ? 1 : problem.m, 0};
  problem.b = {nullptr, layout[1] == 'N' ? problem.n : 1, layout[1] == 'N' ? 1 : problem.k, 0};
  problem.d = {nullptr, problem.n, 1, 0};
  const std::optional<matmul::Plan> plan = matmul::select(problem, device, *asked);
  if (!plan.has_value()) return none();
  Facts facts;
  insert_launch(facts, plan->grid, plan->block);
  facts.insert("tile_m", plan->tile_m);
  facts.insert("tile_n", plan->tile_n);
  facts.insert("tile_k", plan->tile_k);
  facts.insert("dynamic_shared_bytes", plan->dynamic_shared_bytes);
  facts.insert("workspace_bytes", plan->workspace_bytes);
  facts.insert("config", plan->config);
  facts.insert("stages", plan->stages);
  facts.insert("splits", plan->splits);
  facts.insert("tail_tiles", plan->tail_tiles);
  facts.insert("tail_splits", plan->tail_splits);
  facts.insert("cluster", plan->cluster);
  facts.insert("a_packed", plan->is_a_packed);
  facts.insert("b_packed", plan->is_b_packed);
  facts.insert("a_displaced", plan->is_a_displaced);
  facts.insert("a_realigned", plan->is_a_realigned);
  facts.insert("b_realigned", plan->is_b_realigned);
  return {matmul::to_string(*plan), std::move(facts)};
}

PlanFacts transpose_plan(const std::vector<std::int64_t>& sizes, at::ScalarType dtype, c10::string_view algorithm,
                         const DeviceFacts& device) {
  check_sizes(sizes, 2);
  const auto asked = transposition::parse_algorithm({algorithm.data(), algorithm.size()});
  TORCH_CHECK_VALUE(asked.has_value(), "plan_on: unknown algorithm '", algorithm, "' of padded_transpose");
  transposition::Problem problem;
  problem.element_size = static_cast<int>(c10::elementSize(dtype));
  problem.m = sizes[0];
  problem.n = sizes[1];
  problem.in_row_stride = problem.n;
  problem.in_col_stride = 1;
  problem.in_batch_stride = problem.out_batch_stride = problem.m * problem.n;
  problem.out_row_stride = problem.m;
  problem.out_col_stride = 1;
  const std::optional<transposition::Plan> plan = transposition::select(problem, device, *asked);
  if (!plan.has_value()) return none();
  Facts facts;
  insert_launch(facts, plan->grid, plan->block);
  facts.insert("tile_m", plan->tile_m);
  facts.insert("tile_n", plan->tile_n);
  facts.insert("padding", plan->padding);
  facts.insert("level", plan->level);
  facts.insert("halo", plan->halo);
  facts.insert("dynamic_shared_bytes", plan->shared_bytes);
  facts.insert("workspace_bytes", plan->workspace_bytes);
  return {transposition::to_string(*plan), std::move(facts)};
}

}  // namespace

PlanFacts plan_on(c10::string_view op, std::vector<std::int64_t> sizes, at::ScalarType dtype, c10::string_view layout,
                  c10::string_view algorithm, const Facts& device) {
  const DeviceFacts facts = device_facts(device);
  if (op == "tiled_matmul") return matmul_plan(sizes, dtype, layout, algorithm, facts);
  TORCH_CHECK_VALUE(op == "padded_transpose", "plan_on: unknown operator '", op,
                    "'; expected tiled_matmul or padded_transpose");
  return transpose_plan(sizes, dtype, algorithm, facts);
}

std::vector<std::string> algorithms_on(c10::string_view op, at::ScalarType dtype, const Facts& device) {
  const DeviceFacts facts = device_facts(device);
  if (op == "tiled_matmul") return tiled_matmul_algorithms(facts, dtype);
  TORCH_CHECK_VALUE(op == "padded_transpose", "algorithms_on: unknown operator '", op,
                    "'; expected tiled_matmul or padded_transpose");
  return padded_transpose_algorithms(facts, dtype);
}

}  // namespace pmpp::ops
