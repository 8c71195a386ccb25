#include "api/openai/object_id.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace troupe;

TEST_CASE("Ids are long, random and never the same, however many are asked for") {
  std::set<std::string> ids;
  std::set<char> digits;
  for (int i = 0; i < 10'000; ++i) {
    const auto id = object_id("item_");
    REQUIRE(id.starts_with("item_"));
    REQUIRE(id.size() == 5 + 48);
    digits.insert(id.begin() + 5, id.end());
    ids.insert(id);
  }
  CHECK(ids.size() == 10'000);
  CHECK(digits.size() == 16);
}
