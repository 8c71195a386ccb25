// The kinds of speculation, and their names in every interface.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace troupe {

/// Where guesses of the next tokens come from. Tokens and log-probabilities do not depend on it.
enum class speculation : std::uint8_t { automatic, off, draft, mtp, ngram, lookahead, jacobi };

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
