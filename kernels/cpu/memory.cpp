#include "kernels/cpu/memory.hpp"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include <sys/mman.h>

namespace troupe::kernels {

namespace {

constexpr std::size_t huge_page = std::size_t(2) << 20;

/// Sizes of the memory that small matrices share. Memory that is not used is not touched.
constexpr std::size_t slab_bytes = 32 * huge_page, most_in_slab = 4 * huge_page;

} // namespace

buffer allocate_zeroed(std::size_t bytes) {
  const auto failed = [&] { return device_error("cannot allocate " + std::to_string(bytes) + " bytes"); };
  if (bytes > std::numeric_limits<std::size_t>::max() / 2)
    throw failed();
  if (bytes < huge_page) {
    const std::size_t rounded = (bytes + 64) / 64 * 64;
    void* memory = std::aligned_alloc(64, rounded);
    if (memory == nullptr)
      throw failed();
    return {std::memset(memory, 0, rounded), std::free};
  }
  const std::size_t mapped = bytes + huge_page; // room for alignment
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw failed();
  const auto aligned = (reinterpret_cast<std::uintptr_t>(memory) + huge_page - 1) / huge_page * huge_page;
  auto* start = reinterpret_cast<void*>(aligned);
  madvise(start, bytes, MADV_HUGEPAGE); // a hint only
  return {start, [memory, mapped](void*) { munmap(memory, mapped); }};
}

buffer weight_memory::allocate(std::size_t bytes) {
  if (bytes > most_in_slab)
    return allocate_zeroed(bytes);
  const std::size_t rounded = (bytes + 64) / 64 * 64;
  if (slab_ != nullptr && slab_.use_count() == 1 && madvise(slab_.get(), slab_bytes, MADV_DONTNEED) == 0)
    used_ = 0; // nobody uses what was allocated: its pages are given back, and are zero again
  if (slab_ == nullptr || slab_bytes - used_ < rounded) {
    slab_ = allocate_zeroed(slab_bytes);
    used_ = 0;
  }
  return {slab_, static_cast<char*>(slab_.get()) + std::exchange(used_, used_ + rounded)};
}

} // namespace troupe::kernels
