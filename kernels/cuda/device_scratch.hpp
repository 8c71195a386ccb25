// Scratch memory of a step.
#pragma once

#include "kernels/cuda/pinned_staging.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace troupe::kernels::cuda {

/// Device memory that grows to the largest size requested. Growing discards its contents.
class device_scratch {
public:
  template <class T = void>
  T* reserve(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = reserved(bytes);
      memory_ = allocate(size_);
      ++growths_;
    }
    return static_cast<T*>(memory_.get());
  }

  /// A copy of `values` on the device, valid until the next call. `values` has been read when this returns.
  template <class T>
  const T* upload(const stream& on, const T* values, std::size_t count) {
    if (count == 0)
      return nullptr;
    T* to = reserve<T>(count * sizeof(T));
    staging_.copy(on, to, values, count * sizeof(T));
    return to;
  }

  /// The size that `reserve` allocates for a request.
  static constexpr std::size_t reserved(std::size_t bytes) { return std::bit_ceil(std::max(bytes, least)); }

  /// How often the memory has moved.
  std::uint64_t growths() const { return growths_; }

private:
  static constexpr std::size_t least = 64 << 10; // bytes; recordings are lost when memory moves, so start large enough

  buffer memory_;
  pinned_staging staging_;
  std::size_t size_ = 0;
  std::uint64_t growths_ = 0;
};

} // namespace troupe::kernels::cuda
