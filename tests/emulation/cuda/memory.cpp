#include "tests/emulation/cuda/memory.hpp"

#include <algorithm>
#include <mutex>

namespace troupe::kernels::cuda::emulated {

namespace {

/// Used by any thread.
class account {
public:
  bool reserve(std::size_t bytes) {
    std::lock_guard lock(mutex_);
    if (bytes > limit_ - used_)
      return false;
    used_ += bytes;
    most_used_ = std::max(most_used_, used_);
    return true;
  }

  void free(std::size_t bytes) {
    std::lock_guard lock(mutex_);
    used_ -= bytes;
  }

  std::size_t available() {
    std::lock_guard lock(mutex_);
    return limit_ - used_;
  }

  void limit(std::size_t bytes) {
    std::lock_guard lock(mutex_);
    before_ = most_used_ = used_;
    limit_ = used_ + bytes;
  }

  void unlimit() {
    std::lock_guard lock(mutex_);
    limit_ = memory_size;
  }

  std::size_t most_used() {
    std::lock_guard lock(mutex_);
    return most_used_ - before_;
  }

private:
  std::mutex mutex_;
  std::size_t limit_ = memory_size, used_ = 0, before_ = 0, most_used_ = 0; // bytes
};

account& device_memory() {
  static account instance;
  return instance;
}

} // namespace

std::size_t available_memory() { return device_memory().available(); }

buffer count_memory(std::size_t bytes, const std::function<buffer()>& allocate) {
  if (!device_memory().reserve(bytes))
    throw device_error("cudaMalloc (" + std::to_string(bytes) + " bytes): out of memory");
  buffer memory;
  try {
    memory = allocate();
  } catch (...) {
    device_memory().free(bytes);
    throw;
  }
  auto* at = memory.get();
  return {at, [memory = std::move(memory), bytes](void*) mutable {
            memory.reset();
            device_memory().free(bytes);
          }};
}

limited_memory::limited_memory(std::size_t bytes) { device_memory().limit(bytes); }
limited_memory::~limited_memory() { device_memory().unlimit(); }
std::size_t limited_memory::most_used() const { return device_memory().most_used(); }

} // namespace troupe::kernels::cuda::emulated
