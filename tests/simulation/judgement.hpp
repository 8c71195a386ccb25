// Whether a client got what it should: the same as when its request runs alone, or a part of it and a reason that holds.
#pragma once

#include "tests/simulation/clients.hpp"
#include "tests/simulation/faults.hpp"

#include <string>

namespace troupe::simulation {

/// What is wrong; empty: nothing.
std::string judge(const client& c, const scenario& s, const happened& what);

/// What the request answers alone, with such adapters.
const testing::heard& alone(int request, bool recurrent, int stages, int version);

} // namespace troupe::simulation
