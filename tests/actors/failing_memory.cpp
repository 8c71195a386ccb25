#include "tests/actors/failing_memory.hpp"

#include <cstdlib>
#include <new>
#include <utility>

namespace {

thread_local int* allocations_left = nullptr; // null: none fails

/// Null if there is none, or if it is this allocation's turn to fail.
void* try_allocate(std::size_t bytes) noexcept {
  if (allocations_left && *allocations_left > 0 && --*allocations_left == 0) {
    if (troupe::test::failing_allocation::on_refusal)
      troupe::test::failing_allocation::on_refusal();
    return nullptr;
  }
  return std::malloc(bytes > 0 ? bytes : 1);
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

void failing_allocation::arm() { allocations_left = &left_; }
void failing_allocation::disarm() { allocations_left = nullptr; }

no_failing_allocation::no_failing_allocation() : armed_(std::exchange(allocations_left, nullptr)) {}
no_failing_allocation::~no_failing_allocation() { allocations_left = armed_; }

} // namespace troupe::test
