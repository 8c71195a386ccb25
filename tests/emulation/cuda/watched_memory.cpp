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
constexpr std::size_t max_freed_bytes = 16 << 20, max_freed = 1024;
constexpr unsigned char poison_byte = 0xff; // NaN

void poison(unsigned char* at, std::size_t bytes) {
  std::memset(at, poison_byte, bytes);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(at, bytes);
#endif
}

void unpoison([[maybe_unused]] unsigned char* at, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(at, bytes);
#endif
}

bool is_untouched([[maybe_unused]] const unsigned char* at, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#else
  return std::all_of(at, at + bytes, [](unsigned char b) { return b == poison_byte; });
#endif
}

} // namespace

watched_memory::~watched_memory() {
  for (const auto& p : freed_)
    release(p);
}

void* watched_memory::allocate(std::size_t bytes) {
  piece p{nullptr, nullptr, bytes};
  p.given = bytes > most_bytes ? nullptr : std::calloc(alignment + bytes + guard_bytes, 1);
  if (p.given == nullptr)
    return nullptr;
  p.memory = static_cast<unsigned char*>(p.given);
  p.memory += alignment - reinterpret_cast<std::uintptr_t>(p.memory) % alignment;
  poison(p.memory + bytes, guard_bytes);
  std::lock_guard lock(mutex_);
  pieces_.emplace(p.memory, p);
  return p.memory;
}

void watched_memory::free(void* memory) {
  std::lock_guard lock(mutex_);
  const auto found = pieces_.find(static_cast<unsigned char*>(memory));
  const auto p = found->second;
  check_guard(p);
  pieces_.erase(found);
  if (p.bytes > max_freed_bytes)
    return release(p);
  poison(p.memory, p.bytes);
  freed_.push_back(p);
  freed_bytes_ += p.bytes;
  while (freed_bytes_ > max_freed_bytes || freed_.size() > max_freed) {
    const auto oldest = freed_.front();
    freed_.pop_front();
    freed_bytes_ -= oldest.bytes;
    check_freed(oldest);
    release(oldest);
  }
}

bool watched_memory::owns(const void* at) {
  std::lock_guard lock(mutex_);
  auto next = pieces_.upper_bound(static_cast<const unsigned char*>(at));
  if (next == pieces_.begin())
    return false;
  --next;
  return static_cast<const unsigned char*>(at) < next->first + next->second.bytes;
}

void watched_memory::check_guards() {
  std::lock_guard lock(mutex_);
  for (const auto& [at, p] : pieces_)
    check_guard(p);
  throw_if_written();
}

void watched_memory::check_everything() {
  std::lock_guard lock(mutex_);
  for (const auto& [at, p] : pieces_)
    check_guard(p);
  for (const auto& p : freed_)
    check_freed(p);
  throw_if_written();
}

void watched_memory::forget_writes() {
  std::lock_guard lock(mutex_);
  written_.clear();
}

void watched_memory::release(const piece& p) {
  unpoison(p.memory, p.bytes + guard_bytes);
  std::free(p.given);
}

void watched_memory::check_guard(const piece& p) {
  if (!is_untouched(p.memory + p.bytes, guard_bytes))
    written_ = "something was written beyond the " + std::to_string(p.bytes) + " bytes of a piece of device memory";
}

void watched_memory::check_freed(const piece& p) {
  if (!is_untouched(p.memory, p.bytes + guard_bytes))
    written_ = "something was written to " + std::to_string(p.bytes) + " bytes of device memory that had been freed";
}

void watched_memory::throw_if_written() const {
  if (!written_.empty())
    throw device_error(written_);
}

} // namespace troupe::kernels::cuda::emulated
