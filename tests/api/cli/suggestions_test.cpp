#include "api/cli/suggestions.hpp"

#include <doctest/doctest.h>

using namespace troupe::cli;

TEST_CASE("Names of other programs are known") {
  CHECK(name_here("ctx-size") == "max-context");
  CHECK(name_here("max-model-len") == "max-context");
  CHECK(name_here("num-predict") == "max-tokens");
  CHECK(name_here("threads").empty());
}
