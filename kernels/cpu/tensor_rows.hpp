// What the CPU ops share: access to a tensor's rows, and loops over them.
#pragma once

#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

#include <algorithm>

namespace troupe::kernels {

/// Rows of norms, rotations and gathers in one task. Changes no result.
inline constexpr std::size_t rows_per_chunk = 8;

constexpr std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

inline void expect(bool holds, const char* message) {
  if (!holds)
    throw std::invalid_argument(message);
}

template <class T>
T* row_of(const tensor& t, std::size_t row) {
  return static_cast<T*>(t.data) + row * t.stride;
}

inline void* row_of(const tensor& t, std::size_t row) {
  return static_cast<char*>(t.data) + row * t.stride * size_of(t.type);
}

/// Calls f(row) for every row in [0, rows), on all threads.
template <class F>
void for_rows(thread_pool& pool, std::size_t rows, const F& f) {
  pool.parallel_for(ceil_div(rows, rows_per_chunk), [&](std::size_t chunk, int) {
    for (std::size_t r = chunk * rows_per_chunk; r < std::min(rows, (chunk + 1) * rows_per_chunk); ++r)
      f(r);
  });
}

} // namespace troupe::kernels
