// The amount of memory of the emulated device. A test may limit it: allocating more then fails, as on a GPU.
#pragma once

#include "kernels/ops.hpp"

#include <cstddef>
#include <functional>

namespace troupe::kernels::cuda::emulated {

inline constexpr const char* device_name = "emulated GPU";
inline constexpr std::size_t memory_size = std::size_t(1) << 34; // bytes

/// Bytes that can still be allocated.
std::size_t available_memory();

/// The result of `allocate`, counted as `bytes` of device memory while it lives. Throws device_error if there is no
/// room.
buffer count_memory(std::size_t bytes, const std::function<buffer()>& allocate);

/// While it lives, the device has room for `bytes` in addition to earlier allocations.
class limited_memory {
public:
  explicit limited_memory(std::size_t bytes);
  ~limited_memory();
  limited_memory(const limited_memory&) = delete;
  limited_memory& operator=(const limited_memory&) = delete;

  /// Peak usage in bytes.
  std::size_t most_used() const;
};

} // namespace troupe::kernels::cuda::emulated
