// "Did you mean": which of some names a mistyped one is nearest to. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The longest names that are compared; longer ones are as far from each other as this.
inline constexpr std::size_t longest_name = 64;

/// Insertions, deletions and replacements that make one of the other; neighbours that changed places are one (optimal
/// string alignment).
std::size_t name_distance(std::string_view a, std::string_view b);

/// The name of `names` that differs least from `typed`; empty if all differ by more than a third.
std::string nearest(std::string_view typed, const std::vector<std::string>& names);

} // namespace troupe
