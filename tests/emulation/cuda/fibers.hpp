// GPU threads on the host: the threads of a block are fibers of the calling thread, switched only at barriers and warp
// operations, in a fixed order, so that every run is the same. Blocks run one after another. Shared memory starts as
// NaN. Undefined behaviour of a GPU is an error here: a thread that ends while others wait at a barrier or while its
// copies are in flight, a warp operation that not all lanes reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace troupe::kernels::cuda::emulated {

/// Runs `body` as `threads` (a multiple of 32) threads in each of x * y blocks. Rethrows exceptions of threads. Every
/// other launch runs the threads of a block in descending order, which exposes missing barriers.
void run_grid(unsigned x, unsigned y, unsigned threads, std::size_t shared_bytes, const std::function<void()>& body);

unsigned thread();
unsigned threads();
unsigned block_x();
unsigned block_y();
unsigned grid_x();
unsigned char* shared();
void sync_block();

/// Throws std::logic_error unless `at` is a multiple of `bytes`, as wide loads and copies require on a GPU.
void expect_aligned(const void* at, std::size_t bytes);

/// Copies 16 bytes when the thread waits for them or, in every other launch, immediately: the extremes of a GPU.
void copy_async(void* to, const void* from);
/// Bytes that these copies of the calling thread's blocks have read so far.
std::size_t copied_bytes();
void wait_for_copies();

/// Shows `bytes` (at most 32) of this lane to its warp. Returns the data of lane 0; each lane has 32 bytes. They are
/// valid until the warp's operation after the next.
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
