#include "tests/emulation/cuda/watched_memory.hpp"

#include "kernels/ops.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace troupe::kernels::cuda::emulated {

namespace {

constexpr std::size_t most_bytes = std::size_t(1) << 34, alignment = 256, guard_bytes = 1024;
constexpr std::size_t most_returned_bytes = 16 << 20, most_returned = 1024;
constexpr unsigned char forbidden_byte = 0xff; // NaN

void forbid(unsigned char* at, std::size_t bytes) {
  std::memset(at, forbidden_byte, bytes);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(at, bytes);
#endif
}

void allow([[maybe_unused]] unsigned char* at, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(at, bytes);
#endif
}

bool is_untouched([[maybe_unused]] const unsigned char* at, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#else
  return std::all_of(at, at + bytes, [](unsigned char b) { return b == forbidden_byte; });
#endif
}

} // namespace

watched_memory::~watched_memory() {
  for (const auto& p : returned_)
    release(p);
}

void* watched_memory::allocate(std::size_t bytes) {
  piece p{nullptr, nullptr, bytes};
  p.given = bytes > most_bytes ? nullptr : std::calloc(alignment + bytes + guard_bytes, 1);
  if (p.given == nullptr)
    return nullptr;
  p.memory = static_cast<unsigned char*>(p.given);
  p.memory += alignment - reinterpret_cast<std::uintptr_t>(p.memory) % alignment;
  forbid(p.memory + bytes, guard_bytes);
  std::lock_guard lock(mutex_);
  known_.emplace(p.memory, p);
  return p.memory;
}

void watched_memory::give_back(void* memory) {
  std::lock_guard lock(mutex_);
  const auto found = known_.find(static_cast<unsigned char*>(memory));
  const auto p = found->second;
  look_behind(p);
  known_.erase(found);
  if (p.bytes > most_returned_bytes)
    return release(p);
  forbid(p.memory, p.bytes);
  returned_.push_back(p);
  returned_bytes_ += p.bytes;
  while (returned_bytes_ > most_returned_bytes || returned_.size() > most_returned) {
    const auto oldest = returned_.front();
    returned_.pop_front();
    returned_bytes_ -= oldest.bytes;
    look_into(oldest);
    release(oldest);
  }
}

bool watched_memory::knows(const void* at) {
  std::lock_guard lock(mutex_);
  auto next = known_.upper_bound(static_cast<const unsigned char*>(at));
  if (next == known_.begin())
    return false;
  --next;
  return static_cast<const unsigned char*>(at) < next->first + next->second.bytes;
}

void watched_memory::look_behind_all() {
  std::lock_guard lock(mutex_);
  for (const auto& [at, p] : known_)
    look_behind(p);
  say_what_was_written();
}

void watched_memory::look_everywhere() {
  std::lock_guard lock(mutex_);
  for (const auto& [at, p] : known_)
    look_behind(p);
  for (const auto& p : returned_)
    look_into(p);
  say_what_was_written();
}

void watched_memory::forget_what_was_written() {
  std::lock_guard lock(mutex_);
  written_.clear();
}

void watched_memory::release(const piece& p) {
  allow(p.memory, p.bytes + guard_bytes);
  std::free(p.given);
}

void watched_memory::look_behind(const piece& p) {
  if (!is_untouched(p.memory + p.bytes, guard_bytes))
    written_ = "something was written beyond the " + std::to_string(p.bytes) + " bytes of a piece of device memory";
}

void watched_memory::look_into(const piece& p) {
  if (!is_untouched(p.memory, p.bytes + guard_bytes))
    written_ = "something was written to " + std::to_string(p.bytes) + " bytes of device memory that had been freed";
}

void watched_memory::say_what_was_written() const {
  if (!written_.empty())
    throw device_error(written_);
}

} // namespace troupe::kernels::cuda::emulated
