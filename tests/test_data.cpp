#include "tests/test_data.hpp"

namespace troupe {

std::string test_data() { return TROUPE_TEST_DATA; }

} // namespace troupe
