// The folder of the tests' data. Defined in one unit, so that the other objects do not depend on the project's path.
#pragma once

#include <string>

namespace troupe {

/// The folder tests/data.
std::string test_data();

/// A golden checkpoint of that name.
inline std::string golden(const std::string& name) { return test_data() + "/golden/" + name; }

} // namespace troupe
