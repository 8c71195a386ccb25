// The seed of requests that name none. Any thread.
#pragma once

#include <cstdint>
#include <random>

namespace troupe {

inline std::uint64_t random_seed() {
  thread_local std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

} // namespace troupe
