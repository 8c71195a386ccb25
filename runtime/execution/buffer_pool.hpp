// Memory lent from one thread to others: a buffer comes back by itself once nobody holds what was lent, and is lent again.
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
  // A buffer of at least `bytes` that nobody holds: one that came back, else a new one from allocate(bytes). What its
  // last holder did to it happened before. A holder's handle keeps the memory alive after the lender itself.
  template <class Allocate>
  kernels::buffer lend(std::size_t bytes, Allocate allocate) {
    // One look at each: what comes back between two looks must not be taken for what the first one saw.
    auto found = std::ranges::find_if(lent_, [&](auto& one) { return one->bytes >= bytes && is_back(*one); });
    if (found == lent_.end()) {
      std::erase_if(lent_, [](auto& one) { return is_back(*one); }); // too small
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
