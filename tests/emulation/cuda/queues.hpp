// Streams of the emulated device. By default work runs when it is queued, on the calling thread. A test may defer it to
// a thread of the device, which runs it late and in any order that streams and events allow: copies then access host
// memory long after they were queued, streams overtake each other, and code that forgot to wait reads stale data.
#pragma once

#include "kernels/cuda/device.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace troupe::kernels::cuda::emulated {

using work = std::function<void()>;

/// Queues `what`. On a stream that is being recorded, it becomes part of the recording.
void enqueue(const stream& on, work what);

/// Records the work queued on the stream from now on instead of running it, until the recording is finished. Meanwhile
/// the thread must not allocate, free or wait, and no thread may wait for the stream: such calls throw and break the
/// recording, so that finish_recording throws, too.
void start_recording(const stream& on);
std::vector<work> finish_recording(const stream& on);
void discard_recording(const stream& on);

/// Defers work while it lives, in an order that depends on `seed`; the destructor waits for all work. Work that throws
/// makes the device fail as a GPU would: queued work is dropped, and all further calls throw device_error.
class deferred_work {
public:
  explicit deferred_work(std::uint64_t seed);
  ~deferred_work();
  deferred_work(const deferred_work&) = delete;
  deferred_work& operator=(const deferred_work&) = delete;

  /// The n-th piece of work from now on fails with an illegal address.
  void fail_after(std::uint64_t n);
};

/// Throws device_error if a write beyond a piece of device or pinned memory, or to a recently freed piece, has happened
/// since the start of the program. Waiting for a stream checks for writes beyond pieces, too.
void check_memory();
void forget_writes();

/// While it lives, the machine has so many devices. They share the emulated memory's size and the deferred work.
class shown_devices {
public:
  explicit shown_devices(int count);
  ~shown_devices();
  shown_devices(const shown_devices&) = delete;
  shown_devices& operator=(const shown_devices&) = delete;
};

/// While it lives, devices that are selected say so of `device_info::divided_rows`.
class divided_from {
public:
  explicit divided_from(std::size_t rows);
  ~divided_from();
  divided_from(const divided_from&) = delete;
  divided_from& operator=(const divided_from&) = delete;

private:
  std::size_t before_;
};

/// Bytes that are allocated on a device.
std::size_t bytes_on(int device);

/// Bytes that have been copied from a device's memory to another one's.
std::size_t sent_by(int device);

/// Throws device_error if the stream's device is not in use, as launches do.
void check_launch(const stream& on);

/// Calls of the host so far, in all threads.
struct host_counts {
  std::uint64_t waits = 0;       // for streams and events
  std::uint64_t launches = 0;    // of kernels, one by one
  std::uint64_t replays = 0;     // of graphs
  std::uint64_t allocations = 0; // of device and pinned memory
};
host_counts counted();

/// Limits that hold on every GPU of compute capability 8.0 or later; shared memory is that of 8.6.
inline constexpr unsigned most_grid_x = (1u << 31) - 1, most_grid_y = 65535, most_threads = 1024;
inline constexpr std::size_t most_shared_bytes = 99 << 10;

/// Counts a launch. Throws device_error if a GPU would refuse it.
void begin_launch(const char* kernel, unsigned x, unsigned y, unsigned threads, std::size_t shared_bytes);
void count_replay();

} // namespace troupe::kernels::cuda::emulated
