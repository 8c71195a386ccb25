#include "runtime/support/error.hpp"
#include "runtime/support/text/utf8.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("A failure quotes no more than a few thousand bytes, in whole characters") {
  const failure brief(errc::bad_request, std::string(failure::most_message_bytes, 'x'), "field");
  CHECK(brief.what_failed().message == std::string(failure::most_message_bytes, 'x'));
  CHECK(brief.what_failed().param == "field");
  std::string text, param;
  while (text.size() < 5'000'000)
    text += "\u4e2d\u00e9";
  for (int i = 0; i < 1000; ++i)
    param += "\u00e9";
  for (std::size_t cut = 0; cut < 5; ++cut) {
    const failure lengthy(errc::not_found, "`" + std::string(cut, '.') + text + "`", param);
    const auto& what = lengthy.what_failed();
    CHECK(what.code == errc::not_found);
    CHECK(what.message.size() <= failure::most_message_bytes);
    CHECK(what.message.size() > failure::most_message_bytes - 8);
    CHECK(what.message.ends_with("..."));
    CHECK(is_utf8(what.message));
    CHECK(what.message == lengthy.what());
    CHECK(what.param.size() <= failure::most_param_bytes);
    CHECK(is_utf8(what.param));
  }
}
