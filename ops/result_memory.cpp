#include "ops/result_memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>

namespace pmpp::ops {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct Mapping {
  void* data;
  std::size_t bytes;
};

// Starts with a huge page; throws where there is no memory, as PyTorch's allocator does.
Mapping map(std::size_t size) {
  const std::size_t bytes = (size + kPage - 1) / kPage * kPage;
  const std::size_t reserved = bytes + kHugePage;
  void* const start = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK_WITH(OutOfMemoryError, start != MAP_FAILED, "pmpp: cannot allocate ", size, " bytes for a result");
  const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(start) % kHugePage) % kHugePage;
  auto* const data = static_cast<char*>(start) + before;
  if (before > 0) munmap(start, before);
  munmap(data + bytes, kHugePage - before);
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);  // advice: a refusal changes nothing
#endif
  return {data, bytes};
}

// What was freed last is taken first, as the caches may still hold it.
class Kept {
 public:
  // A mapping of at least `size` bytes and at most an eighth more; none has 0 bytes.
  Mapping take(std::size_t size) {
    // Another thread may have held the lock when this process was forked: nobody waits for it.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return {};
    const auto fits = [&](const Mapping& kept) { return kept.bytes >= size && kept.bytes - size <= size / 8 + kPage; };
    const auto found = std::find_if(mappings_.begin(), mappings_.end(), fits);
    if (found == mappings_.end()) return {};
    const Mapping mapping = *found;
    bytes_ -= mapping.bytes;
    mappings_.erase(found);
    return mapping;
  }

  // The oldest go where there are too many.
  void keep(Mapping mapping) {
    std::list<Mapping> dropped;
    dropped.push_back(mapping);
    if (mapping.bytes <= kKeptBytes && is_left_to_the_system(mapping)) {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (lock.owns_lock()) {
        mappings_.splice(mappings_.begin(), dropped);
        bytes_ += mapping.bytes;
        while (bytes_ > kKeptBytes) {
          bytes_ -= mappings_.back().bytes;
          dropped.splice(dropped.end(), mappings_, std::prev(mappings_.end()));
        }
      }
    }
    for (const Mapping& old : dropped) munmap(old.data, old.bytes);
  }

 private:
  // Pages that nobody has written to since are free to be taken; 256 MiB of huge pages are marked so in 0.1 ms, and
  // cost nothing to be written again.
  static bool is_left_to_the_system([[maybe_unused]] Mapping mapping) {
#ifdef MADV_FREE
    return madvise(mapping.data, mapping.bytes, MADV_FREE) == 0;
#else
    return false;
#endif
  }

  std::mutex mutex_;
  std::list<Mapping> mappings_;
  std::size_t bytes_ = 0;
};

// Never destroyed: tensors may outlive every static object.
Kept& kept() {
  static Kept& instance = *new Kept;
  return instance;
}

void release(void* context) {
  const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(context));
  c10::profiledCPUMemoryReporter().Delete(mapping->data);
  kept().keep(*mapping);
}

class ResultAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    if (size < kOwnMappingBytes) return c10::GetCPUAllocator()->allocate(size);
    auto mapping = std::make_unique<Mapping>(kept().take(size));
    if (mapping->bytes == 0) *mapping = map(size);
    void* const data = mapping->data;
    c10::profiledCPUMemoryReporter().New(data, size);
    return {data, mapping.release(), &release, at::kCPU};
  }

  void copy_data(void* target, const void* source, std::size_t size) const override {
    default_copy_data(target, source, size);
  }
};

}  // namespace

c10::Allocator& result_allocator() {
  static ResultAllocator& instance = *new ResultAllocator;
  return instance;
}

at::Tensor empty_result(at::IntArrayRef shape, const at::TensorOptions& options) {
  if (!options.device().is_cpu() || options.pinned_memory()) return at::empty(shape, options);
  // A program that has set an allocator of its own gets its memory from that.
  if (c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator()) return at::empty(shape, options);
  const at::ScalarType dtype = options.dtype().toScalarType();
  if (at::detail::computeStorageNbytesContiguous(shape, c10::elementSize(dtype)) < kOwnMappingBytes) {
    return at::empty(shape, options);
  }
  return at::detail::empty_generic(shape, &result_allocator(), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype,
                                   std::nullopt);
}

}  // namespace pmpp::ops
