// A pool of buffers lent from one thread to others. A buffer returns when its last handle is dropped, on any thread,
// and is then lent again.
#pragma once

#include "kernels/ops.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

namespace troupe {

class buffer_pool {
public:
  /// Lends a free buffer of at least `bytes`, else a new one from allocate(bytes). Everything its last holder did to it
  /// happens before. A handle keeps its memory alive, even after the pool.
  template <class Allocate>
  kernels::buffer lend(std::size_t bytes, Allocate allocate) {
    // Each flag is read once: a buffer that returns in between must not be mistaken for one found too small.
    auto found = std::ranges::find_if(lent_, [&](auto& one) { return one->bytes >= bytes && is_back(*one); });
    if (found == lent_.end()) {
      std::erase_if(lent_, [](auto& one) { return is_back(*one); });
      add(allocate(bytes), bytes);
      found = lent_.end() - 1;
    }
    auto one = *found;
    one->back.store(false, std::memory_order_relaxed);
    auto* memory = one->memory.get();
    return {memory, [one = std::move(one)](void*) { one->back.store(true, std::memory_order_release); }};
  }

  void add(kernels::buffer memory, std::size_t bytes) {
    lent_.push_back(std::make_shared<pooled_buffer>(std::move(memory), bytes));
  }

private:
  struct pooled_buffer {
    pooled_buffer(kernels::buffer of, std::size_t size) : memory(std::move(of)), bytes(size) {}
    kernels::buffer memory;
    std::size_t bytes;
    std::atomic<bool> back = true;
  };

  static bool is_back(const pooled_buffer& one) { return one.back.load(std::memory_order_acquire); }

  std::vector<std::shared_ptr<pooled_buffer>> lent_;
};

} // namespace troupe
