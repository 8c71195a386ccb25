#include "runtime/engine/loading/memory_ledger.hpp"

#include <doctest/doctest.h>

#include <optional>

using namespace troupe;

namespace {

struct some_memory {
  memory_ledger ledger;
  memory_ledger::state now{1000, 0};

  auto plan() {
    return ledger.plan([this] { return now; });
  }
  std::size_t left() { return plan().left(); }
  memory_entry reserve(std::size_t bytes) { return plan().reserve("something", bytes); }

  /// The process fills memory that it was promised, or other.
  void take(std::size_t bytes) {
    now.available -= bytes;
    now.used += static_cast<std::int64_t>(bytes);
  }
};

} // namespace

TEST_CASE("a ledger without promises leaves what is available, whatever the process uses") {
  some_memory m;
  m.now.used = 500;
  CHECK(m.left() == 1000);
}

TEST_CASE("what is promised is not left for others, whether it was taken yet or not") {
  some_memory m;
  m.now.used = 70;
  const auto entry = m.reserve(600);
  CHECK(m.left() == 400);
  m.take(200);
  CHECK(m.left() == 400);
  m.take(400);
  CHECK(m.left() == 400);
  m.take(100); // more than was promised
  CHECK(m.left() == 300);
}

TEST_CASE("what other processes take is missing, too, and more promises than memory leave nothing") {
  some_memory m;
  const auto entry = m.reserve(600);
  m.now.available -= 300;
  CHECK(m.left() == 100);
  m.now.available -= 300;
  CHECK(m.left() == 0);
  const auto more = m.reserve(5000);
  CHECK(m.left() == 0);
}

TEST_CASE("entries give back what they were promised, in any order, and can be moved") {
  some_memory m;
  std::optional first(m.reserve(100)), second(m.reserve(200));
  auto third = m.plan().reserve("third", 300);
  CHECK(m.left() == 400);
  CHECK(m.plan().promised() == 600);
  auto moved = std::move(*second);
  second.reset();
  CHECK(m.left() == 400);
  first.reset();
  CHECK(m.left() == 500);
  moved = std::move(third);
  { const auto last = std::move(moved); }
  CHECK(m.left() == 800); // what `moved` had is given back by `third`
  REQUIRE(m.ledger.promises().size() == 1);
  CHECK(m.ledger.promises()[0].bytes == 200);
}

TEST_CASE("after the last promise was given back, what the process still uses concerns no later one") {
  some_memory m;
  {
    const auto entry = m.reserve(600);
    m.take(500);
  }
  CHECK(m.left() == 500); // nothing is returned to the system
  const auto entry = m.reserve(300);
  CHECK(m.left() == 200);
}
