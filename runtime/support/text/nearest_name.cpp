#include "runtime/support/text/nearest_name.hpp"

#include <algorithm>
#include <array>

namespace troupe {

std::size_t name_distance(std::string_view a, std::string_view b) {
  if (a.size() > longest_name || b.size() > longest_name)
    return longest_name;
  std::array<std::array<std::size_t, longest_name + 1>, 3> rows;
  auto &before = rows[0], &last = rows[1], &now = rows[2];
  for (std::size_t j = 0; j <= b.size(); ++j)
    last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last[b.size()];
}

std::string nearest(std::string_view typed, const std::vector<std::string>& names) {
  constexpr std::size_t shortest = 3; // of what says enough to guess from
  if (typed.size() < shortest || typed.size() > longest_name)
    return {};
  std::string best;
  auto below = typed.size() / 3 + 1;
  for (const auto& name : names)
    if (const auto d = name_distance(typed, name); d < below) {
      below = d;
      best = name;
    }
  return best;
}

} // namespace troupe
