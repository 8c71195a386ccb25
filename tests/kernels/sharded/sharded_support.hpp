// Backends whose ranks divide even small matrices.
#pragma once

#include "kernels/sharded/sharded_backend.hpp"
#include "tests/kernels/support.hpp"

namespace troupe::kernels::testing {

inline constexpr std::size_t small_unit = 16;

inline std::unique_ptr<backend> make_ranks(isa target, std::size_t ranks, int threads = 1,
                                           std::size_t unit = small_unit) {
  std::vector<std::unique_ptr<backend>> all;
  for (std::size_t i = 0; i < ranks; ++i)
    all.push_back(make_cpu_backend({.threads = threads, .target = target, .led = true}));
  return make_sharded_backend(std::move(all), {}, unit);
}

} // namespace troupe::kernels::testing
