#include "ops/stats.h"

#include <array>
#include <atomic>
#include <iterator>

namespace pmpp::ops {
namespace {

using Counter = std::atomic<std::int64_t>;
template <std::size_t kSize>
using Counters = std::array<std::array<Counter, kSize>, 2>;  // [is_cuda]

constexpr const char* kDevices[] = {"cpu", "cuda"};
constexpr const char* kReplacedNames[] = {"mm", "addmm", "bmm", "baddbmm"};
constexpr const char* kFallbackNames[] = {"dtype", "shape", "empty", "layout", "device", "out", "scalar", "names"};
static_assert(std::size(kReplacedNames) == kReplacedCount && std::size(kFallbackNames) == kFallbackCount);

// Zero before any code runs, so that a call during another library's initialisation counts as well.
Counters<std::size(matmul::kAllAlgorithms)> matmuls;
Counters<std::size(transposition::kAllAlgorithms)> transposes;
Counters<kReplacedCount> taken;
Counters<std::size_t{kReplacedCount} * kFallbackCount> fallbacks;

template <class All>
void add(All& all, bool is_cuda, std::size_t index) {
  all[is_cuda][index].fetch_add(1, std::memory_order_relaxed);
}

// Calls visitor(prefix, name of the counter, counter) for each counter there is.
template <class Visitor>
void visit(Visitor&& visitor) {
  for (int device = 0; device < 2; ++device) {
    const std::string on = std::string("/") + kDevices[device] + "/";
    for (const matmul::Algorithm algorithm : matmul::kAllAlgorithms) {
      visitor("kernel" + on + "tiled_matmul/" + matmul::algorithm_name(algorithm),
              matmuls[device][static_cast<std::size_t>(algorithm)]);
    }
    for (const transposition::Algorithm algorithm : transposition::kAllAlgorithms) {
      visitor("kernel" + on + "padded_transpose/" + transposition::algorithm_name(algorithm),
              transposes[device][static_cast<std::size_t>(algorithm)]);
    }
    for (int function = 0; function < kReplacedCount; ++function) {
      visitor("taken" + on + kReplacedNames[function], taken[device][function]);
      for (int reason = 0; reason < kFallbackCount; ++reason) {
        visitor("fallback" + on + kReplacedNames[function] + "/" + kFallbackNames[reason],
                fallbacks[device][function * kFallbackCount + reason]);
      }
    }
  }
}

}  // namespace

void count_matmul(const matmul::Plan& plan) { add(matmuls, plan.is_cuda, static_cast<std::size_t>(plan.algorithm)); }

void count_transpose(const transposition::Plan& plan) {
  add(transposes, plan.is_cuda, static_cast<std::size_t>(plan.algorithm));
}

void count_taken(Replaced function, bool is_cuda) { add(taken, is_cuda, static_cast<std::size_t>(function)); }

void count_fallback(Replaced function, bool is_cuda, Fallback reason) {
  add(fallbacks, is_cuda, static_cast<std::size_t>(function) * kFallbackCount + static_cast<std::size_t>(reason));
}

std::vector<std::pair<std::string, std::int64_t>> stats() {
  std::vector<std::pair<std::string, std::int64_t>> result;
  visit([&](const std::string& name, const Counter& counter) {
    const std::int64_t value = counter.load(std::memory_order_relaxed);
    if (value != 0) result.emplace_back(name, value);
  });
  return result;
}

void reset_stats() {
  visit([](const std::string&, Counter& counter) { counter.store(0, std::memory_order_relaxed); });
}

}  // namespace pmpp::ops
