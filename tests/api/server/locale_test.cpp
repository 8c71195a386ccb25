// The server in a program that has a locale of its own.
#include "tests/api/server/live_server.hpp"
#include "tests/foreign_locale.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace troupe;
using namespace troupe::test;

TEST_CASE("Headers and metrics do not depend on the program's locale") {
  const foreign_locale chosen("de_DE");
  live_server live;
  raw_client client(live.port());
  client.get("/metrics");
  const auto metrics = client.read_response();
  CHECK(metrics.status == 200);
  CHECK(metrics.body.find("le=\"0.01\"") != std::string::npos);
  for (std::size_t at = 0; at < metrics.body.size();) {
    const auto end = metrics.body.find('\n', at);
    const auto line = metrics.body.substr(at, end - at);
    if (!line.starts_with('#'))
      CHECK_MESSAGE(line.substr(line.rfind(' ')).find(',') == std::string::npos, line);
    at = end + 1;
  }
  const auto date = metrics.headers.at("date");
  const auto names = [&](std::size_t at, std::string_view known) {
    return known.find(date.substr(at, 3)) != known.npos;
  };
  CHECK_MESSAGE(names(0, "Mon Tue Wed Thu Fri Sat Sun"), date);
  CHECK_MESSAGE(names(8, "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"), date);
}
