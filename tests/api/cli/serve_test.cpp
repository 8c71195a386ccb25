#include "api/cli/serve.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("serve warns where results depend on what else runs, and says what helps") {
  model_info model;
  CHECK(cli::schedule_warning(model).empty());
  model.schedule_invariant = false;
  CHECK(cli::schedule_warning(model) ==
        "On this device results depend on what else runs; --deterministic makes them independent of it");
}
