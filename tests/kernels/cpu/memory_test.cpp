#include "kernels/cpu/memory.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

using namespace troupe::kernels;

TEST_CASE("Small matrices share memory, which is zero, and used again when nobody has any of it") {
  weight_memory memory;
  constexpr std::size_t bytes = std::size_t(3) << 20;
  const auto is_zero = [](const buffer& b, std::size_t size) {
    const auto* from = static_cast<const char*>(b.get());
    return std::all_of(from, from + size, [](char c) { return c == 0; });
  };
  auto first = memory.allocate(bytes), second = memory.allocate(100);
  CHECK(reinterpret_cast<std::uintptr_t>(second.get()) % 64 == 0);
  std::memset(first.get(), 1, bytes);
  std::memset(second.get(), 1, 100);
  const auto* place = first.get();
  first = nullptr;
  auto third = memory.allocate(bytes); // the second is there still
  CHECK(third.get() != place);
  CHECK(is_zero(third, bytes));
  CHECK(*static_cast<const char*>(second.get()) == 1);
  std::memset(third.get(), 1, bytes);
  second = third = nullptr;
  const auto again = memory.allocate(bytes);
  CHECK(again.get() == place);
  CHECK(is_zero(again, bytes));
}
