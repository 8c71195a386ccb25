#include "runtime/support/error.hpp"
#include "runtime/techniques/compile_queue.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace troupe;

namespace {

using tickets = std::vector<std::uint64_t>;

tickets all_brief(compile_queue& queue) {
  tickets result;
  while (const auto t = queue.next_brief())
    result.push_back(*t);
  return result;
}

} // namespace

TEST_CASE("clients take turns, whoever came first with many") {
  compile_queue queue;
  for (std::uint64_t t = 1; t <= 4; ++t)
    queue.add(t, "greedy", 10);
  queue.add(5, "modest", 10);
  queue.add(6, "", 10);
  CHECK(all_brief(queue) == tickets{1, 5, 6, 2, 3, 4});
}

TEST_CASE("what takes long waits for patience, and each client has one patient thread") {
  compile_queue queue;
  for (std::uint64_t t = 1; t <= 3; ++t)
    queue.add(t, "greedy", 10);
  queue.add(4, "other", 10);
  CHECK_FALSE(queue.next_patient());
  for (const auto t : all_brief(queue))
    queue.put_back(t);
  CHECK(queue.next_patient() == 1);
  CHECK(queue.next_patient() == 4);
  CHECK_FALSE(queue.next_patient()); // the greedy one has one already
  queue.remove(1);
  CHECK(queue.next_patient() == 2);
  queue.remove(2);
  queue.remove(4);
  CHECK(queue.next_patient() == 3);
  queue.remove(3);
  CHECK(queue.size() == 0);
}

TEST_CASE("what is no longer wanted leaves the queue, wherever it stands") {
  compile_queue queue;
  for (std::uint64_t t = 1; t <= 5; ++t)
    queue.add(t, "a", 10);
  CHECK(queue.next_brief() == 1);
  queue.put_back(1);
  queue.remove(1);
  queue.remove(2);
  queue.remove(2); // twice is as good as once
  CHECK(queue.next_brief() == 3);
  queue.remove(3); // while it is compiled
  queue.put_back(3);
  CHECK_FALSE(queue.next_patient());
  CHECK(all_brief(queue) == tickets{4, 5});
}

TEST_CASE("the queue is bounded in number and bytes, and no client fills it alone") {
  compile_queue queue({.jobs = 4, .bytes = 1000});
  queue.add(1, "a", 300);
  CHECK_THROWS_WITH(queue.add(2, "a", 300), doctest::Contains("of this client"));
  queue.add(3, "a", 100);
  CHECK_THROWS_AS(queue.add(4, "a", 0), failure);
  queue.add(5, "b", 400);
  CHECK_THROWS_WITH(queue.add(6, "c", 400), doctest::Contains("too many guides wait"));
  queue.add(7, "c", 10);
  CHECK_THROWS_AS(queue.add(8, "d", 0), failure);
  queue.remove(1);
  queue.add(9, "a", 300);
  for (const auto t : {3, 5, 7, 9})
    queue.remove(static_cast<std::uint64_t>(t));
  queue.add(10, "a", 500);
  CHECK(queue.size() == 1);
}
