// The names of speculation's kinds, as in every interface.
#pragma once

#include "runtime/sampling/sampling_params.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace troupe {

inline constexpr std::array<std::pair<std::string_view, speculation>, 7> speculation_names{{
  {"auto", speculation::automatic},
  {"off", speculation::off},
  {"draft", speculation::draft},
  {"mtp", speculation::mtp},
  {"ngram", speculation::ngram},
  {"lookahead", speculation::lookahead},
  {"jacobi", speculation::jacobi},
}};

constexpr std::optional<speculation> speculation_of(std::string_view name) {
  const auto found = std::ranges::find(speculation_names, name, [](const auto& known) { return known.first; });
  return found == speculation_names.end() ? std::nullopt : std::optional(found->second);
}

constexpr std::string_view name_of(speculation kind) {
  return std::ranges::find(speculation_names, kind, [](const auto& known) { return known.second; })->first;
}

} // namespace troupe
