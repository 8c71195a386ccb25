#include "runtime/execution/buffer_pool.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

using namespace troupe;

TEST_CASE("A buffer is lent again once its last holder is gone, and outlives its lender") {
  int made = 0;
  const auto allocate = [&](std::size_t bytes) {
    ++made;
    return kernels::buffer(new char[bytes], [](void* p) { delete[] static_cast<char*>(p); });
  };
  buffer_pool lender;
  auto first = lender.lend(8, allocate);
  auto second = lender.lend(8, allocate);
  CHECK(first != second);
  CHECK(made == 2);
  auto* memory = first.get();
  const auto copy = first;
  first.reset();
  CHECK(lender.lend(8, allocate).get() != memory); // a copy is still held
  CHECK(made == 3);
  const auto third = lender.lend(4, allocate); // what came back is enough
  CHECK(made == 3);
  const auto larger = lender.lend(16, allocate);
  CHECK(made == 4);
  auto kept = std::make_unique<buffer_pool>();
  const auto orphan = kept->lend(1, allocate);
  kept.reset();
  *static_cast<char*>(orphan.get()) = 'x';
}

TEST_CASE("One thread's use of a buffer happens before the next thread's") {
  buffer_pool lender;
  std::set<const int*> seen;
  std::vector<std::shared_ptr<const void>> kept;
  std::vector<std::thread> threads;
  const auto allocate = [&](std::size_t) {
    auto memory = std::make_shared<int>(0);
    kept.push_back(memory);
    seen.insert(memory.get());
    return kernels::buffer(memory);
  };
  for (int i = 0; i < 500; ++i) {
    auto lent = lender.lend(sizeof(int), allocate);
    *static_cast<int*>(lent.get()) += 1;
    threads.emplace_back([held = std::move(lent)] { *static_cast<int*>(held.get()) += 1; });
  }
  for (auto& thread : threads)
    thread.join();
  int sum = 0;
  for (const auto* value : seen)
    sum += *value;
  CHECK(sum == 1000);
}

TEST_CASE("Buffers that return during a search are never lent too small") {
  buffer_pool lender;
  std::map<const void*, std::size_t> sizes;
  std::vector<kernels::buffer> memory;
  const auto allocate = [&](std::size_t bytes) {
    memory.push_back(std::make_shared<std::vector<char>>(bytes));
    sizes[memory.back().get()] = bytes;
    return memory.back();
  };
  std::mutex guard;
  std::deque<kernels::buffer> held;
  bool over = false;
  std::thread returner([&] {
    for (bool last = false; !last;) {
      kernels::buffer back;
      const std::lock_guard lock(guard);
      last = over;
      if (!held.empty()) {
        back = std::move(held.front());
        held.pop_front();
      }
    }
  });
  bool enough = true;
  for (std::size_t i = 0; i < 20'000; ++i) {
    const std::size_t bytes = 1 + i * 7919 % 64;
    auto lent = lender.lend(bytes, allocate);
    enough = enough && sizes[lent.get()] >= bytes;
    const std::lock_guard lock(guard);
    held.push_back(std::move(lent));
  }
  {
    const std::lock_guard lock(guard);
    over = true;
  }
  returner.join();
  CHECK(enough);
}
