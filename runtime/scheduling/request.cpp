#include "runtime/scheduling/request.hpp"

namespace troupe {

bool reasoning_marks::holds(std::string_view text) const {
  if (!is_open) {
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == text.npos || !text.substr(first).starts_with(begin))
      return false;
    text.remove_prefix(first + begin.size());
  }
  return text.find(end) == text.npos;
}

} // namespace troupe
