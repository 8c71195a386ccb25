// Texts for which there is no memory are not called invalid.
#include "runtime/support/json/json.hpp"
#include "tests/actors/failing_memory.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("whichever allocation fails while a text is parsed, it is the memory that is missing") {
  const std::string text = R"({"a": [1, 2, {"b": "c"}], "long": ")" + std::string(5000, 'x') + "\"}";
  int failures = 0;
  for (int nth = 1;; ++nth) {
    CAPTURE(nth);
    test::failing_allocation failing(nth);
    bool no_memory = false;
    failing.arm();
    try {
      json::document::parse(text, "it", errc::bad_request);
    } catch (const std::bad_alloc&) {
      no_memory = true;
    } catch (...) {
      failing.disarm();
      FAIL("another reason is given");
    }
    failing.disarm();
    CHECK(no_memory == failing.happened());
    if (!failing.happened())
      break;
    ++failures;
  }
  CHECK(failures > 3);
}
