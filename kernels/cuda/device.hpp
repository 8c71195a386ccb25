// A GPU as the CUDA backend sees it: memory, streams, copies, events. Two implementations, one linked: native/ over
// CUDA's run-time library, emulated/ over host memory. Every failure throws device_error naming the call.
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
  /// Bytes that are not counted as allocations: of the driver, recorded graphs, the library and its workspace, and what
  /// allocations are rounded up by. An estimate.
  std::size_t overhead = 0;
  /// Sizes at which measurements of the device's peaks are long enough to be exact: bytes to copy, and the order of the
  /// matrices to multiply.
  std::size_t peak_copy_bytes = 0, peak_product_size = 0;
};

/// 0 where there is no GPU or no driver; then `why_none`, if given, says what the driver says.
int device_count(std::string* why_none = nullptr);

/// Makes device `index` the calling thread's; every thread that calls what is below does this once.
device_info select_device(int index);

/// A queue of work, with what it needs to time itself. Of one thread.
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

  /// Milliseconds on the device between two calls, of which the second waits.
  void start_timer();
  float stop_timer();

private:
  void* native_ = nullptr;
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

/// A point in a stream's work. Recorded by one thread, waited for by any.
class event final : public device_event {
public:
  /// `timed`: it keeps when it happened.
  explicit event(bool timed = false);
  ~event() override;

  /// After all that is queued on the stream now.
  void record(const stream& on);

  bool happened() const override;
  void synchronise() const override;

  /// The run-time library's handle.
  void* native() const { return native_; }

private:
  void* native_ = nullptr;
};

/// Between two timed events that have happened.
float milliseconds_between(const event& from, const event& to);

/// What is queued on the stream from now on waits for what was last recorded.
void wait_for(const stream& on, const event& e);

/// Calls `f`, on a thread of the driver's, when all that is queued now is done; not at all where that fails. `f` must
/// not use the device.
void call_on_host(const stream& on, std::function<void()> f);

/// Zeroed device memory, aligned to 256 bytes. Waits for its own zeros only, so that other threads may be recording.
buffer allocate(std::size_t bytes);

/// Host memory that the device copies from and to without a detour.
buffer allocate_pinned(std::size_t bytes);

/// Queued; `from` in pageable host memory has been read when the call returns.
void copy_to_device(const stream& on, void* to, const void* from, std::size_t bytes);
void copy_to_host(const stream& on, void* to, const void* from, std::size_t bytes);
void copy_on_device(const stream& on, void* to, const void* from, std::size_t bytes);

/// The most bytes that rows may lie apart where they are copied together.
inline constexpr std::size_t most_pitch = (std::size_t(1) << 31) - 1;

/// `rows` pieces of `bytes`, which lie a pitch apart on either side; in any direction.
void copy_rows(const stream& on, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t bytes, std::size_t rows);

void fill_zero(const stream& on, void* at, std::size_t bytes);

} // namespace troupe::kernels::cuda
