#include "api/cli/suggestions.hpp"

#include <doctest/doctest.h>

using namespace troupe::cli;

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

TEST_CASE("Names of other programs are known") {
  CHECK(name_here("ctx-size") == "max-context");
  CHECK(name_here("max-model-len") == "max-context");
  CHECK(name_here("num-predict") == "max-tokens");
  CHECK(name_here("threads").empty());
}
