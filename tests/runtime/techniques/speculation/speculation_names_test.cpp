#include "runtime/techniques/speculation/speculation_names.hpp"
#include "runtime/techniques/speculation/technique.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("the kinds of speculation have names") {
  for (const auto& [name, kind] : speculation_names) {
    CHECK(speculation_of(name) == kind);
    CHECK(name_of(kind) == name);
  }
  CHECK_FALSE(speculation_of("medusa").has_value());
}
