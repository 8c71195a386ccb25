#include "runtime/support/text/nearest_name.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("The nearest name is found through typing errors, and none where all differ much") {
  const std::vector<std::string> names{"threads", "temperature", "top-p", "max-tokens", "model", "n"};
  CHECK(nearest("treads", names) == "threads");
  CHECK(nearest("temprature", names) == "temperature");
  CHECK(nearest("tpo-p", names) == "top-p"); // swapped
  CHECK(nearest("max-token", names) == "max-tokens");
  CHECK(nearest("max_tokens", names) == "max-tokens");
  CHECK(nearest("modle", names) == "model");
  CHECK(nearest("frobnicate", names).empty());
  CHECK(nearest("m", names).empty());
  CHECK(nearest("", names).empty());
  CHECK(nearest("model", {}).empty());
  CHECK(nearest(std::string(100'000, 'm'), names).empty());
}
