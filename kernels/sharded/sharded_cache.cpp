#include "kernels/sharded/sharded_cache.hpp"

#include <algorithm>

namespace troupe::kernels {

void cut_rows(const batch& step, std::int32_t first, std::int32_t end, std::vector<sequence_rows>& cut) {
  cut.clear();
  for (auto s : step.sequences) {
    const auto from = std::max(first, s.first_row), to = std::min(end, s.first_row + s.rows);
    if (from >= to)
      continue;
    s.first_position += from - s.first_row;
    s.first_row = from;
    s.rows = to - from;
    cut.push_back(s);
  }
}

void divide_rows(const batch& step, int window, std::size_t parts, std::vector<std::int32_t>& ends) {
  constexpr std::int64_t of_any_row = 32; // what a row costs, in positions, even if it sees none
  const auto cost = [&](std::int32_t position) {
    return of_any_row + (window > 0 ? std::min(window, position + 1) : position + 1);
  };
  std::int64_t all = 0, done = 0;
  for (const auto& s : step.sequences)
    for (std::int32_t i = 0; i < s.rows; ++i)
      all += cost(s.first_position + i);
  ends.clear();
  for (const auto& s : step.sequences)
    for (std::int32_t i = 0; i < s.rows; ++i) {
      done += cost(s.first_position + i);
      if (done * static_cast<std::int64_t>(parts) >= all * static_cast<std::int64_t>(ends.size() + 1))
        ends.push_back(s.first_row + i + 1);
    }
}

std::int32_t rows_of(const batch& step) {
  std::int32_t end = 0;
  for (const auto& s : step.sequences)
    end = std::max(end, s.first_row + s.rows);
  return end;
}

} // namespace troupe::kernels
