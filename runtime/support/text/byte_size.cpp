#include "runtime/support/text/byte_size.hpp"

#include "runtime/support/text/number_text.hpp"

namespace troupe {

std::string to_size(std::size_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit)
    value /= 1024;
  return to_fixed(value, unit == 0 || value >= 100 ? 0 : 1) + " " + units[unit];
}

} // namespace troupe
