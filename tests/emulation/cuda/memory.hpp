// How much memory the emulated device has. A test may leave it little: then allocating more fails, as on a GPU.
#pragma once

#include "kernels/ops.hpp"

#include <cstddef>
#include <functional>

namespace troupe::kernels::cuda::emulated {

inline constexpr const char* device_name = "emulated GPU";
inline constexpr std::size_t memory_size = std::size_t(1) << 34; // bytes

/// What can still be allocated.
std::size_t available_memory();

/// What `allocate` gives, counted as `bytes` of the device's memory as long as it lives. Throws device_error where there
/// is no room.
buffer count_memory(std::size_t bytes, const std::function<buffer()>& allocate);

/// While one lives, the device has room for `bytes` beside what was allocated before.
class limited_memory {
public:
  explicit limited_memory(std::size_t bytes);
  ~limited_memory();
  limited_memory(const limited_memory&) = delete;
  limited_memory& operator=(const limited_memory&) = delete;

  /// Bytes of it that were in use at once.
  std::size_t most_used() const;
};

} // namespace troupe::kernels::cuda::emulated
