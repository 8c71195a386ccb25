// Where the tests' data lies. Defined in one unit, so that no other unit's objects depend on where the project lies.
#pragma once

#include <string>

namespace troupe {

/// The folder tests/data.
std::string test_data();

} // namespace troupe
