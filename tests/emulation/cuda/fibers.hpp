// GPU threads on the host: the threads of a block are fibers of the calling thread, switched at barriers and warp
// operations only, in a fixed order; so every run is the same. Blocks run one after another. Shared memory starts as
// NaN. What a GPU leaves undefined is an error here: a thread that ends while others wait at a barrier or with
// copies under way, a warp operation that not all lanes reach. Used by tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace troupe::kernels::cuda::emulated {

/// Runs `body` as `threads` (a multiple of 32) threads in each of x * y blocks. Throws what a thread throws.
/// Every other launch runs the threads of a block in descending order, so that a missing barrier shows.
void run_grid(unsigned x, unsigned y, unsigned threads, std::size_t shared_bytes, const std::function<void()>& body);

unsigned thread();
unsigned threads();
unsigned block_x();
unsigned block_y();
unsigned grid_x();
unsigned char* shared();
void sync_block();

/// Throws where a GPU would: what is loaded or copied at once is aligned to its size.
void expect_aligned(const void* at, std::size_t bytes);

/// 16 bytes that arrive when the thread waits for them or, every other launch, at once: as late and as early as on a GPU.
void copy_async(void* to, const void* from);
void wait_for_copies();

/// Shows `bytes` (at most 32) of this lane to its warp; returns where those of lane 0 are, 32 bytes a lane. They stay
/// until the warp's next but one operation.
const unsigned char* show_warp(const void* mine, std::size_t bytes);

template <class T>
T exchange(T value, unsigned lane) {
  T other;
  std::memcpy(&other, show_warp(&value, sizeof(T)) + 32 * lane, sizeof(T));
  return other;
}

template <class T>
T atomic_add(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}

void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

} // namespace troupe::kernels::cuda::emulated
