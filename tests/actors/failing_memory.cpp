#include "tests/actors/failing_memory.hpp"

#include <cstdlib>
#include <new>
#include <utility>

namespace {

thread_local troupe::test::failing_allocation* armed = nullptr; // null: none fails

/// Null if there is none, or if it is this allocation's turn to fail.
void* try_allocate(std::size_t bytes) noexcept {
  return armed && armed->refuses() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}

void* allocate(std::size_t bytes) {
  if (void* memory = try_allocate(bytes))
    return memory;
  throw std::bad_alloc();
}

} // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return try_allocate(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return try_allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace troupe::test {

void failing_allocation::arm() { armed = this; }
void failing_allocation::disarm() { armed = nullptr; }

bool failing_allocation::refuses() noexcept {
  if (left_ == 0)
    return lasting_;
  if (--left_ > 0)
    return false;
  if (on_refusal) {
    const no_failing_allocation meanwhile;
    on_refusal();
  }
  return true;
}

no_failing_allocation::no_failing_allocation() : armed_(std::exchange(armed, nullptr)) {}
no_failing_allocation::~no_failing_allocation() { armed = armed_; }

} // namespace troupe::test
