#include "api/cli/commands/serve.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("a server on a loopback address needs no key") {
  for (const char* host : {"127.0.0.1", "127.8.9.10", "::1", "localhost"})
    CHECK_MESSAGE(cli::is_loopback(host), host);
  for (const char* host : {"0.0.0.0", "::", "192.168.1.2", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1", "example.org", ""})
    CHECK_MESSAGE(!cli::is_loopback(host), host);
}

TEST_CASE("serve warns if results depend on the schedule, and names the remedy") {
  model_info model;
  CHECK(cli::schedule_warning(model).empty());
  model.schedule_invariant = false;
  CHECK(cli::schedule_warning(model) ==
        "On this device results depend on what else runs; --deterministic makes them independent of it");
}
