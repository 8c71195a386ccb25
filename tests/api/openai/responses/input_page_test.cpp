#include "api/openai/responses/input_page.hpp"

#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("Input items come in pages, the newest first") {
  const std::string items = R"([{"id":"a"},{"id":"b"},{"id":"c"}])";
  const auto page = [](const std::string& data, const std::string& first, const std::string& last, bool more) {
    return R"({"object":"list","data":)" + data + R"(,"first_id":)" + first + R"(,"last_id":)" + last +
      R"(,"has_more":)" + (more ? "true}" : "false}");
  };
  CHECK(input_page(items, "") == page(R"([{"id":"c"},{"id":"b"},{"id":"a"}])", R"("c")", R"("a")", false));
  CHECK(input_page(items, "?order=asc&limit=2") == page(R"([{"id":"a"},{"id":"b"}])", R"("a")", R"("b")", true));
  CHECK(input_page(items, "?limit=2&after=b&order=asc&include[]=x") ==
        page(R"([{"id":"c"}])", R"("c")", R"("c")", false));
  CHECK(input_page(items, "?after=b") == page(R"([{"id":"a"}])", R"("a")", R"("a")", false));
  CHECK(input_page(items, "?after=a") == page("[]", "null", "null", false));
  CHECK(input_page("[]", "?") == page("[]", "null", "null", false));
}

TEST_CASE("A wrong parameter of a page is named") {
  for (const auto& [query, param] :
       {std::pair("?limit=0", "limit"), std::pair("?limit=101", "limit"), std::pair("?limit=2x", "limit"),
        std::pair("?limit=", "limit"), std::pair("?order=up", "order"), std::pair("?after=z", "after")}) {
    CAPTURE(query);
    try {
      input_page(R"([{"id":"a"}])", query);
      FAIL_CHECK("nothing was wrong");
    } catch (const failure& f) {
      CHECK(f.what_failed().code == errc::bad_request);
      CHECK(f.what_failed().param == param);
      CHECK(f.what_failed().message.find(param) != std::string::npos);
    }
  }
}
