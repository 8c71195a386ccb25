// Memory of the CPU backend: zeroed, aligned to 64 bytes, in huge pages if it is large.
#pragma once

#include "kernels/ops.hpp"

namespace troupe::kernels {

/// Throws device_error naming the size. Large regions are not touched here: they take memory page by page as they are
/// used.
buffer allocate_zeroed(std::size_t bytes);

/// Memory of weights. Matrices too small to fill huge pages of their own, such as those of experts, share some.
class weight_memory {
public:
  /// Zeroed memory; throws as `allocate_zeroed` does. Shared pages are freed with the last buffer in them, or reused
  /// for the next one.
  buffer allocate(std::size_t bytes);

private:
  buffer slab_;
  std::size_t used_ = 0;
};

/// Scratch memory that grows to the largest size asked for and is then reused. Growing discards the contents.
template <class T>
class scratch {
public:
  T* reserve(std::size_t count) {
    if (count > capacity_) {
      memory_.reset();
      memory_ = allocate_zeroed(count * sizeof(T));
      capacity_ = count;
    }
    return static_cast<T*>(memory_.get());
  }

  /// Of the memory that it has.
  std::size_t bytes() const { return capacity_ * sizeof(T); }

private:
  buffer memory_;
  std::size_t capacity_ = 0;
};

} // namespace troupe::kernels
