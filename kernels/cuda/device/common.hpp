// Shared by kernels and the host code that launches them: the qualifier of device functions, vector types, sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define TROUPE_DEVICE __device__ __forceinline__
#else
#define TROUPE_DEVICE inline
#endif

namespace troupe::kernels::cuda {

inline constexpr unsigned warp_lanes = 32;

/// Blocks of a launch.
struct grid_size {
  unsigned x = 1, y = 1;
};

/// 8 and 16 bytes that are loaded and stored at once, aligned to their size.
struct alignas(8) words2 {
  std::uint32_t x = 0, y = 0;
};
struct alignas(16) words4 {
  std::uint32_t x = 0, y = 0, z = 0, w = 0;
};

/// Word `index` of four. Free if `index` is the constant of an unrolled loop.
TROUPE_DEVICE std::uint32_t word_of(const words4& from, int index) {
  return index == 0 ? from.x : index == 1 ? from.y : index == 2 ? from.z : from.w;
}

template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

constexpr int at_least(int x, int least) { return x < least ? least : x; }
constexpr int at_most(int x, int most) { return x > most ? most : x; }

} // namespace troupe::kernels::cuda
