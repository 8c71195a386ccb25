#include "runtime/support/meter.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>

namespace troupe {

thread_local constinit meter* meter::current_ = nullptr;

void meter::look() {
  if (spent_ == reason::none && stop_.stop_requested())
    spent_ = reason::stopped;
  if (spent_ == reason::none && steps_ > most_.steps)
    spent_ = reason::steps;
  next_look_ = spent_ == reason::none ? next_look() : 0; // once spent, whatever follows throws
  if (spent_ != reason::none)
    throw meter_spent();
}

bool meter::admit(std::size_t bytes) noexcept {
  // Allocating takes time, and so does filling the memory.
  const auto steps = 3 + bytes / 256;
  for (auto* m = this; m; m = m->around_) {
    m->steps_ += steps;
    if (m->spent_ == reason::none && m->bytes() + bytes > m->most_.bytes)
      m->spent_ = reason::bytes;
    if (m->spent_ != reason::none)
      m->next_look_ = 0;
    if (m->steps_ < m->next_look_)
      continue;
    try {
      m->look();
    } catch (const meter_spent&) {
      return false;
    }
  }
  return true;
}

void meter::count(std::ptrdiff_t bytes) noexcept {
  for (auto* m = current_; m; m = m->around_) {
    m->bytes_ += bytes;
    m->peak_ = std::max(m->peak_, m->bytes_);
  }
}

void meter::reset() {
  steps_ = 0;
  bytes_ = peak_ = 0;
  spent_ = reason::none;
  next_look_ = next_look();
}

bool meter::counts_allocations() {
  static const bool result = [] {
    meter probe({});
    probe.run([] { ::operator delete(::operator new(64)); });
    return probe.peak_bytes() > 0;
  }();
  return result;
}

} // namespace troupe

// -- the program's operator new ---------------------------------------------------------
//
// They do what the standard library's do, and ask the thread's meter. Weak: a program that brings its own keeps it.

namespace troupe::metered {

constexpr std::size_t overhead = 16; // bytes of the allocator, with each allocation

std::ptrdiff_t size_of(void* memory) noexcept {
  return static_cast<std::ptrdiff_t>(::malloc_usable_size(memory) + overhead);
}

void* try_allocate(std::size_t bytes, std::size_t alignment = 0) noexcept {
  if (!troupe::meter::admits(bytes + overhead))
    return nullptr;
  bytes = std::max<std::size_t>(bytes, 1);
  void* const memory = alignment == 0 ? std::malloc(bytes)
                                      : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory && troupe::meter::is_counting())
    troupe::meter::count(size_of(memory));
  return memory;
}

void* allocate(std::size_t bytes, std::size_t alignment = 0) {
  for (;;) {
    if (void* const memory = try_allocate(bytes, alignment))
      return memory;
    if (const auto* m = troupe::meter::current(); m && m->is_spent())
      throw troupe::meter_spent();
    const auto handler = std::get_new_handler();
    if (!handler)
      throw std::bad_alloc();
    handler();
  }
}

void release(void* memory) noexcept {
  if (memory && troupe::meter::is_counting())
    troupe::meter::count(-size_of(memory));
  std::free(memory);
}

} // namespace troupe::metered

#define TROUPE_WEAK __attribute__((weak))

TROUPE_WEAK void* operator new(std::size_t bytes) { return troupe::metered::allocate(bytes); }
TROUPE_WEAK void* operator new[](std::size_t bytes) { return troupe::metered::allocate(bytes); }
TROUPE_WEAK void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return troupe::metered::try_allocate(bytes);
}
TROUPE_WEAK void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return troupe::metered::try_allocate(bytes);
}
TROUPE_WEAK void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return troupe::metered::allocate(bytes, static_cast<std::size_t>(alignment));
}
TROUPE_WEAK void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return troupe::metered::allocate(bytes, static_cast<std::size_t>(alignment));
}
TROUPE_WEAK void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return troupe::metered::try_allocate(bytes, static_cast<std::size_t>(alignment));
}
TROUPE_WEAK void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return troupe::metered::try_allocate(bytes, static_cast<std::size_t>(alignment));
}
TROUPE_WEAK void operator delete(void* memory) noexcept { troupe::metered::release(memory); }
TROUPE_WEAK void operator delete[](void* memory) noexcept { troupe::metered::release(memory); }
TROUPE_WEAK void operator delete(void* memory, std::size_t) noexcept { troupe::metered::release(memory); }
TROUPE_WEAK void operator delete[](void* memory, std::size_t) noexcept { troupe::metered::release(memory); }
TROUPE_WEAK void operator delete(void* memory, const std::nothrow_t&) noexcept { troupe::metered::release(memory); }
TROUPE_WEAK void operator delete[](void* memory, const std::nothrow_t&) noexcept { troupe::metered::release(memory); }
TROUPE_WEAK void operator delete(void* memory, std::align_val_t) noexcept { troupe::metered::release(memory); }
TROUPE_WEAK void operator delete[](void* memory, std::align_val_t) noexcept { troupe::metered::release(memory); }
TROUPE_WEAK void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  troupe::metered::release(memory);
}
TROUPE_WEAK void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  troupe::metered::release(memory);
}
TROUPE_WEAK void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  troupe::metered::release(memory);
}
TROUPE_WEAK void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  troupe::metered::release(memory);
}
