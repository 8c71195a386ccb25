// The tables of logits in tests/data/beams.json, as language models.
#pragma once

#include "tests/runtime/sampling/groups/groups_test_data.hpp"

namespace troupe::test {

inline constexpr float table_unit = 1.f / 65536; // of tests/data/beams.json

inline std::vector<std::vector<float>> read_matrix(json::value v) {
  std::vector<std::vector<float>> rows;
  for (auto row : json::array(v)) {
    rows.push_back(list<float>(row));
    for (auto& x : rows.back())
      x *= table_unit;
  }
  return rows;
}

/// Logits by the last token and the one before it.
inline language_model read_table(json::value v) {
  return [first = read_matrix(v["first"]), second = read_matrix(v["second"])](std::span<const token_id> sequence) {
    auto row = first[static_cast<std::size_t>(sequence.back())];
    if (sequence.size() > 1)
      for (std::size_t i = 0; i < row.size(); ++i)
        row[i] += second[static_cast<std::size_t>(sequence[sequence.size() - 2])][i];
    return row;
  };
}

} // namespace troupe::test
