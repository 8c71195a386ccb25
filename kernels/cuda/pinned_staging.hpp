// Copies ordinary host memory to the device without waiting. The copy goes through page-locked memory, which it may
// still read after the caller has changed or freed its own.
#pragma once

#include "kernels/cuda/device.hpp"

#include <array>
#include <memory>

namespace troupe::kernels::cuda {

class pinned_staging {
public:
  /// Queues a copy; `from` has been read when this returns. Waits only if so many copies are in flight that no piece
  /// of page-locked memory is free. Refused on a stream that is being recorded, because the recording would copy what
  /// the memory holds later: throws std::logic_error.
  void copy(const stream& on, void* to, const void* from, std::size_t bytes);

private:
  struct piece {
    buffer memory;
    std::size_t bytes = 0;
    event copied;
  };
  static void grow(piece& p, std::size_t bytes);

  std::array<std::unique_ptr<piece>, 4> pieces_; // made when first needed
  std::size_t next_ = 0;
};

} // namespace troupe::kernels::cuda
