#include "kernels/cuda/pinned_staging.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace troupe::kernels::cuda {

namespace {

constexpr std::size_t least_bytes = 4 << 10;

} // namespace

void pinned_staging::copy(const stream& on, void* to, const void* from, std::size_t bytes) {
  if (is_recorded(on))
    throw std::logic_error("an upload of host memory must not be part of a recording");
  auto& slot = pieces_[next_++ % pieces_.size()];
  if (!slot)
    slot = std::make_unique<piece>();
  if (!slot->copied.happened())
    slot->copied.synchronise();
  if (slot->bytes < bytes) {
    slot->bytes = std::bit_ceil(std::max(bytes, least_bytes));
    slot->memory = allocate_pinned(slot->bytes);
  }
  std::memcpy(slot->memory.get(), from, bytes);
  copy_to_device(on, to, slot->memory.get(), bytes);
  slot->copied.record(on);
}

} // namespace troupe::kernels::cuda
