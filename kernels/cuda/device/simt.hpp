// The vocabulary that kernels are written in: thread indices, barriers, warp shuffles, tensor-core products, vector
// loads. native/simt.hpp has the primitives; this header adds functions made of them. Blocks are one-dimensional and
// consist of whole warps; all lanes of a warp take part in its collective operations. Only for kernels.
#pragma once

#include "kernels/cuda/device/common.hpp"
#include "kernels/cuda/native/simt.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::kernels::cuda::simt {

TROUPE_DEVICE unsigned lane() { return thread() % warp_lanes; }
TROUPE_DEVICE unsigned warp() { return thread() / warp_lanes; }
TROUPE_DEVICE float bf16_to_float(std::uint16_t b) { return bits_to_float(std::uint32_t(b) << 16); }
template <class T>
TROUPE_DEVICE T larger(T a, T b) {
  return a > b ? a : b;
}
TROUPE_DEVICE float larger(float a, float b) { return maximum(a, b); }

/// The sum over the warp, added in the same order in every lane.
template <class T>
TROUPE_DEVICE T warp_sum(T value) {
  for (int mask = 16; mask > 0; mask /= 2)
    value += shuffle_xor(value, mask);
  return value;
}

template <class T>
TROUPE_DEVICE T warp_max(T value) {
  for (int mask = 16; mask > 0; mask /= 2)
    value = larger(value, shuffle_xor(value, mask));
  return value;
}

/// Combines a value of every warp, in the order of the warps; all threads receive the result. `scratch`: an element of
/// shared memory per warp, which may be reused after the call.
template <class T, class Combine>
TROUPE_DEVICE T across_warps(T value, T* scratch, const Combine& combine) {
  if (lane() == 0)
    scratch[warp()] = value;
  sync_block();
  T total = scratch[0];
  for (unsigned w = 1; w < threads() / warp_lanes; ++w)
    total = combine(total, scratch[w]);
  sync_block();
  return total;
}

template <class T>
TROUPE_DEVICE T block_sum(T value, T* scratch) {
  return across_warps(warp_sum(value), scratch, [](T a, T b) { return a + b; });
}

TROUPE_DEVICE float block_max(float value, float* scratch) {
  return across_warps(warp_max(value), scratch, [](float a, float b) { return larger(a, b); });
}

} // namespace troupe::kernels::cuda::simt
