// Pinned memory of the host that is lent again once nobody uses it: allocating it is slow. Used by one thread.
#pragma once

#include "kernels/cuda/device.hpp"

#include <bit>
#include <cstddef>
#include <vector>

namespace troupe {

class pinned_pool {
public:
  /// It is lent while its use_count exceeds 1.
  kernels::buffer lend(std::size_t bytes) {
    for (auto& each : all_)
      if (each.memory.use_count() == 1 && each.bytes >= bytes)
        return each.memory;
    std::erase_if(all_, [](auto& each) { return each.memory.use_count() == 1; });
    add(std::bit_ceil(bytes));
    return all_.back().memory;
  }

  /// One more, of exactly so many bytes.
  void add(std::size_t bytes) { all_.push_back({kernels::cuda::allocate_pinned(bytes), bytes}); }

private:
  struct pinned_buffer {
    kernels::buffer memory;
    std::size_t bytes = 0;
  };
  std::vector<pinned_buffer> all_;
};

} // namespace troupe
