// Streams of the emulated device. By default what is queued is done at once, by the caller. A test may have it done later
// instead, by a thread of the device's own, in any order that streams and events allow: then copies read and write host
// memory long after they were queued, streams overtake each other, and whoever forgot to wait reads what is not there yet.
#pragma once

#include "kernels/cuda/device.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace troupe::kernels::cuda::emulated {

using work = std::function<void()>;

/// Does `what` when its turn comes. In a stream that is being recorded, it becomes part of the recording.
void enqueue(const stream& on, work what);

/// What is queued on the stream from now on is kept instead of done, until the recording is taken. Meanwhile the thread
/// may not allocate, free or wait, nor anyone wait for the stream: such calls throw, and so does taking what they spoilt.
void start_recording(const stream& on);
std::vector<work> finish_recording(const stream& on);
void discard_recording(const stream& on);

/// While one lives, work is done later, in an order that `seed` chooses. Its end waits for all of it. Work that throws
/// fails the device, as on a GPU: all that is queued is dropped, and whatever is asked of it throws device_error.
class deferred_work {
public:
  explicit deferred_work(std::uint64_t seed);
  ~deferred_work();
  deferred_work(const deferred_work&) = delete;
  deferred_work& operator=(const deferred_work&) = delete;

  /// The n-th piece of work from now on fails: an illegal address.
  void fail_after(std::uint64_t n);
};

/// Throws device_error where, since the program's start, something was written behind a piece of device or pinned memory
/// or to one of those last freed. Waiting for a stream looks behind pieces, too.
void check_memory();
void forget_writes();

/// What the host has done so far, in all threads.
struct host_counts {
  std::uint64_t waits = 0;       // for streams and events
  std::uint64_t launches = 0;    // of kernels, one by one
  std::uint64_t replays = 0;     // of graphs
  std::uint64_t allocations = 0; // of device and pinned memory
};
host_counts counted();

/// Limits that all GPUs of compute capability 8.0 and later have in common; the shared memory is that of 8.6.
inline constexpr unsigned most_grid_x = (1u << 31) - 1, most_grid_y = 65535, most_threads = 1024;
inline constexpr std::size_t most_shared_bytes = 99 << 10;

/// Counts a launch. Throws device_error where a GPU would refuse it.
void begin_launch(const char* kernel, unsigned x, unsigned y, unsigned threads, std::size_t shared_bytes);
void count_replay();

} // namespace troupe::kernels::cuda::emulated
