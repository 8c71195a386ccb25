#include "runtime/scheduling/planning/fair_queue.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;

namespace {

std::vector<std::uint64_t> order(const fair_queue& queue, const slots_by_client& held, std::int32_t each = 1) {
  std::vector<std::uint64_t> result;
  fair_queue::turns turns(queue, held);
  while (const auto id = turns.next()) {
    result.push_back(id->request);
    turns.take(each);
  }
  return result;
}

} // namespace

TEST_CASE("clients that wait are taken in turn, and of one client the first to come") {
  fair_queue queue;
  for (std::uint64_t i = 1; i <= 4; ++i)
    queue.add("a", {0, i, {i, 0}});
  queue.add("b", {0, 5, {5, 0}});
  queue.add("b", {0, 6, {6, 0}});
  CHECK(queue.size() == 6);
  CHECK(order(queue, {}) == std::vector<std::uint64_t>{1, 5, 2, 6, 3, 4});
  queue.remove("b", {0, 5, {5, 0}});
  queue.remove("b", {0, 5, {5, 0}});
  CHECK(queue.size() == 5);
  CHECK(order(queue, {}) == std::vector<std::uint64_t>{1, 6, 2, 3, 4});
}

TEST_CASE("a client's 33rd slot comes after another's first") {
  fair_queue queue;
  queue.add("a", {0, 1, {1, 0}});
  queue.add("b", {0, 2, {2, 0}});
  CHECK(order(queue, {{"a", 32}}) == std::vector<std::uint64_t>{2, 1});
  CHECK(order(queue, {{"b", 1}}) == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("with one slot, clients alternate, whether or not they had others waiting when they got it") {
  fair_queue queue;
  for (std::uint64_t i = 1; i <= 3; ++i)
    queue.add("a", {0, i, {i, 0}});
  queue.served("a");
  queue.remove("a", {0, 1, {1, 0}});
  queue.add("b", {0, 9, {9, 0}});
  CHECK(order(queue, {}).front() == 9);
  queue.served("b");
  queue.remove("b", {0, 9, {9, 0}});
  queue.add("b", {0, 10, {10, 0}});
  CHECK(order(queue, {}).front() == 2);
}

TEST_CASE("a priority counts more than a turn") {
  fair_queue queue;
  queue.add("a", {0, 1, {1, 0}});
  queue.add("b", {1, 2, {2, 0}});
  CHECK(order(queue, {{"b", 10}}) == std::vector<std::uint64_t>{2, 1});
}

TEST_CASE("turns of very many clients are forgotten, not kept for ever") {
  fair_queue queue;
  for (int i = 0; i < 100'000; ++i)
    queue.served(std::to_string(i));
  queue.add("99999", {0, 1, {1, 0}});
  queue.add("1", {0, 2, {2, 0}});
  CHECK(order(queue, {}).front() == 2);
}

TEST_CASE("of a full queue, the client that has most gives way, unless that is the newcomer") {
  fair_queue queue;
  for (std::uint64_t i = 1; i <= 4; ++i)
    queue.add("a", {0, i, {i, 0}});
  queue.add("b", {0, 5, {5, 0}});
  CHECK(queue.largest_beside("b") == "a");
  CHECK(queue.largest_beside("c") == "a");
  CHECK(!queue.largest_beside("a"));
  queue.add("b", {0, 6, {6, 0}});
  queue.add("b", {0, 7, {7, 0}});
  CHECK(!queue.largest_beside("b")); // it would have as many
}

TEST_CASE("rows of a step are divided equally, and what one client does not want the others get") {
  constexpr auto all = std::numeric_limits<std::int32_t>::max();
  std::map<std::string, std::uint64_t, std::less<>> turns;
  row_shares one;
  one.want("a", 1000);
  one.divide(64, 16, turns);
  CHECK(one.left("a") == all);

  row_shares two;
  two.want("a", 1000);
  two.want("b", 10);
  two.divide(64, 16, turns);
  CHECK(two.left("a") == 54);
  CHECK(two.left("b") >= 10);
  two.take("a", 50);
  CHECK(two.left("a") == 4);

  row_shares enough;
  enough.want("a", 20);
  enough.want("b", 20);
  enough.divide(64, 16, turns);
  CHECK(enough.left("a") == all);

  row_shares many;
  const std::vector<std::string> names{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  for (const auto& name : names) // which outlive the shares
    many.want(name, 100);
  many.divide(64, 16, turns);
  CHECK(many.left("0") == 16); // not 6: four clients go on well, rather than all badly
}

TEST_CASE(
  "clients that only decode have a part of the rows as well, which nobody gets, and all of them three at most") {
  std::map<std::string, std::uint64_t, std::less<>> turns;
  const auto left = [&](std::int32_t beside, std::int32_t wanted) {
    row_shares shares;
    shares.want("a", wanted);
    shares.divide(256, 16, turns, beside);
    return shares.left("a");
  };
  CHECK(left(0, 1000) == std::numeric_limits<std::int32_t>::max());
  CHECK(left(1, 1000) == 128);
  CHECK(left(2, 1000) == 85);
  CHECK(left(100, 1000) == 64);
  CHECK(left(100, 60) >= 60);
  row_shares again; // when the rest of the step is asked for
  again.want("a", 1000);
  again.had("a", 64);
  again.divide(256 - 64, 16, turns, 3);
  CHECK(again.left("a") == 0);
}

TEST_CASE("clients take turns where a step has too few rows for all") {
  std::map<std::string, std::uint64_t, std::less<>> turns;
  const auto divide = [&](std::int32_t rows, std::int32_t of_b) {
    row_shares shares;
    shares.want("a", 1000);
    shares.want("b", of_b);
    shares.divide(rows, 16, turns);
    return std::pair(shares.left("a"), shares.left("b"));
  };
  CHECK(divide(16, 17) == std::pair(16, 0));
  CHECK(divide(16, 17) == std::pair(0, 16));
  CHECK(divide(16, 1) == std::pair(16, 0));
  CHECK(divide(16, 1) == std::pair(15, 1));  // what it does not want the other gets
  CHECK(divide(20, 17) == std::pair(16, 4)); // less than a share is no turn
  CHECK(divide(20, 17) == std::pair(4, 16));
  row_shares other;
  other.want("c", 1);
  other.divide(16, 16, turns);
  CHECK(turns.empty()); // who does not wait is forgotten
}
