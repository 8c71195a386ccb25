#include "tests/actors/failing_memory.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local int* allocations_left = nullptr; // null: none fails

void* allocate(std::size_t bytes) {
  if (allocations_left && *allocations_left > 0 && --*allocations_left == 0)
    throw std::bad_alloc();
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1))
    return memory;
  throw std::bad_alloc();
}

} // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace troupe::test {

void failing_allocation::arm() { allocations_left = &left_; }
void failing_allocation::disarm() { allocations_left = nullptr; }

} // namespace troupe::test
