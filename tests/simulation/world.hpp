// One simulation: an engine of the real actors under CAF's deterministic coordinator, clients, and trouble, as a scenario says. Runs
// one job at a time, chosen by the seed; time passes only between jobs.
#pragma once

#include "tests/listener.hpp"
#include "tests/simulation/coverage.hpp"
#include "tests/simulation/scenario.hpp"

#include <cstdint>
#include <string>

namespace troupe::simulation {

struct outcome {
  std::string trouble; // empty: all is well
  std::uint64_t jobs = 0, messages = 0, deaths = 0, answers = 0;
  testing::heard first; // what the first client has heard
};

/// `covered`: is added to; or null.
outcome simulate(const scenario& s, bool traced, coverage* covered);

} // namespace troupe::simulation
