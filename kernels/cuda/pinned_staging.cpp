#include "kernels/cuda/pinned_staging.hpp"

#include <bit>
#include <cstring>
#include <stdexcept>

namespace troupe::kernels::cuda {

namespace {

constexpr std::size_t least_bytes = 4 << 10;

} // namespace

void pinned_staging::grow(piece& p, std::size_t bytes) {
  p.bytes = std::bit_ceil(bytes);
  p.memory = allocate_pinned(p.bytes);
}

void pinned_staging::copy(const stream& on, void* to, const void* from, std::size_t bytes) {
  if (is_recorded(on))
    throw std::logic_error("an upload of host memory must not be part of a recording");
  for (auto& p : pieces_) // all at once, so that later steps allocate nothing
    if (!p) {
      p = std::make_unique<piece>();
      grow(*p, least_bytes);
    }
  auto& slot = pieces_[next_++ % pieces_.size()];
  if (!slot->copied.happened())
    slot->copied.synchronise();
  if (slot->bytes < bytes)
    grow(*slot, bytes);
  std::memcpy(slot->memory.get(), from, bytes);
  copy_to_device(on, to, slot->memory.get(), bytes);
  slot->copied.record(on);
}

} // namespace troupe::kernels::cuda
