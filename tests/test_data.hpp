// Path of the test data. Defined in one unit, so that no other object depends on the project's path.
#pragma once

#include <string>

namespace troupe {

/// Returns the path of tests/data.
std::string test_data();

/// The folder of published chat templates beside the project; empty where there is none.
std::string published_templates();

/// A golden checkpoint of that name.
inline std::string golden(const std::string& name) { return test_data() + "/golden/" + name; }

} // namespace troupe
