// A GPU as the CUDA backend sees it: memory, streams, copies, events. native/ implements it over CUDA's run-time
// library; tests link an implementation over host memory instead (tests/emulation/cuda). Every failure throws
// device_error that names the call.
#pragma once

#include "kernels/device_event.hpp"
#include "kernels/ops.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace troupe::kernels::cuda {

struct device_info {
  std::string name;
  int major = 0, minor = 0; // compute capability
  int multiprocessors = 0;
  std::size_t memory = 0;    // bytes
  std::size_t available = 0; // bytes of it that are free now
  std::size_t l2_bytes = 0;  // of the cache that all multiprocessors share
  /// Bytes that are not counted as allocations: of the driver, recorded graphs, the library and its workspace, and what
  /// allocations are rounded up by. An estimate.
  std::size_t overhead = 0;
  /// Sizes at which measurements of the device's peaks are long enough to be exact: bytes to copy, and the order of the
  /// matrices to multiply.
  std::size_t peak_copy_bytes = 0, peak_product_size = 0;
  /// Rows of a step from which on GPUs that share a model divide them. An estimate (NOTES.md).
  std::size_t divided_rows = 0;
};

/// 0 without a GPU or a driver; `why_none`, unless null, then receives the driver's reason.
int device_count(std::string* why_none = nullptr);

/// Makes `index` the calling thread's device. Every thread that uses the functions below does this once.
device_info select_device(int index);

/// Makes `index` the calling thread's device again, for threads that use several devices and have selected each of them
/// before. Apart from copies and waits, a stream is used while its device is the thread's.
void use_device(int index);

/// Lets the thread's device address the memory of `other`. Throws device_error if the machine cannot.
void map_device(int other);

/// A queue of work on the device, with a timer. Used by one thread.
class stream {
public:
  stream();
  ~stream();
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  /// The run-time library's handle.
  void* native() const { return native_; }

  /// Waits for everything queued.
  void synchronise() const;

  /// stop_timer waits for the stream and returns the milliseconds since start_timer, measured on the device.
  void start_timer();
  float stop_timer();

private:
  void* native_ = nullptr;
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

/// A point in a stream's work. Recorded by one thread; any thread may wait for it.
class event final : public device_event {
public:
  /// `timed`: for milliseconds_between.
  explicit event(bool timed = false);
  ~event() override;

  /// Marks the end of everything queued on the stream so far.
  void record(const stream& on);

  bool happened() const override;
  void synchronise() const override;

  /// The run-time library's handle.
  void* native() const { return native_; }

private:
  void* native_ = nullptr;
};

/// Time between two timed events that have happened.
float milliseconds_between(const event& from, const event& to);

/// Work queued on the stream from now on waits until the event's last recording has happened.
void wait_for(const stream& on, const event& e);

/// Calls `f` on a driver thread once everything queued so far is done, or never if that fails. `f` must not use the
/// device.
void call_on_host(const stream& on, std::function<void()> f);

/// Zeroed device memory, aligned to 256 bytes. Waits for nothing but the zeroing, so that other threads may be
/// recording.
buffer allocate(std::size_t bytes);

/// Page-locked host memory, which the device copies to and from directly.
buffer allocate_pinned(std::size_t bytes);

/// Whether the stream's work is being recorded (graph.hpp).
bool is_recorded(const stream& on);

/// These queue a copy. Host memory is page-locked, or stays as it is until the stream has been waited for.
void copy_to_device(const stream& on, void* to, const void* from, std::size_t bytes);
void copy_to_host(const stream& on, void* to, const void* from, std::size_t bytes);
void copy_on_device(const stream& on, void* to, const void* from, std::size_t bytes);

/// The largest pitch of copy_rows.
inline constexpr std::size_t most_pitch = (std::size_t(1) << 31) - 1;

/// Copies `rows` pieces of `bytes` each, a pitch apart on either side, in any direction.
void copy_rows(const stream& on, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t bytes, std::size_t rows);

void fill_zero(const stream& on, void* at, std::size_t bytes);

} // namespace troupe::kernels::cuda
