#include "api/http/connection_table.hpp"

#include <doctest/doctest.h>

#include <array>

using namespace troupe;

namespace {

/// Names for connections.
std::array<char, 64> names;
connection_table::id name(std::size_t i) { return &names.at(i); }

} // namespace

TEST_CASE("One address leaves an eighth of the connections to others") {
  connection_table table(16);
  for (std::size_t i = 0; i < 14; ++i) {
    REQUIRE(table.judge("a").why == connection_table::refusal::none);
    table.open(name(i), "a");
  }
  CHECK(table.judge("a").why == connection_table::refusal::share);
  CHECK(table.judge("b").why == connection_table::refusal::none);
  table.close(name(3));
  CHECK(table.judge("a").why == connection_table::refusal::none);
  CHECK(table.size_of("a") == 13);
}

TEST_CASE("When all connections are open, the address that has most closes the one that is idle for longest") {
  connection_table table(4);
  for (std::size_t i = 0; i < 3; ++i)
    table.open(name(i), "a");
  table.open(name(3), "b");
  CHECK(table.judge("c").why == connection_table::refusal::full); // none is idle
  table.set_idle(name(3), true);
  CHECK(table.judge("c").why == connection_table::refusal::full); // b has no more than c would have
  table.set_idle(name(2), true);
  table.set_idle(name(0), true);
  CHECK(table.judge("c").gives_way == name(2));
  CHECK(table.judge("b").gives_way == name(2));
  CHECK(table.judge("a").why == connection_table::refusal::full); // it has most itself
  table.set_idle(name(2), false);
  CHECK(table.judge("c").gives_way == name(0));
}

TEST_CASE("A closed connection leaves nothing in the table, and closing it again is harmless") {
  connection_table table(8);
  table.open(name(0), "a");
  table.close(name(0));
  table.close(name(0));
  table.set_idle(name(0), true);
  CHECK(table.size() == 0);
  CHECK(table.size_of("a") == 0);
}
