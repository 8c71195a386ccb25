// Steering as a technique: requests choose among the vectors that the engine has (the flag `steer`).
#pragma once

#include "runtime/techniques/technique.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

extern const technique steering_technique; // keeps a steering_library

/// One vector of those that the engine has, by its name. Layers count from 0, both ends belong to the range.
struct steering_choice {
  std::string name;
  float strength = 1;
  std::optional<int> first_layer = {}, last_layer = {}; // absent: the first, the last

  bool operator==(const steering_choice&) const = default;
};

/// Bounds of requests.
inline constexpr std::size_t most_steering_choices = 16;
inline constexpr float most_steering_strength = 1000;

/// A request's use of such choices; null: there are none.
technique_use_ptr steered_by(std::vector<steering_choice> choices);

/// The choices of a use of this technique. Null: none.
std::span<const steering_choice> choices_of(const technique_use* use);

/// A flag: NAME, NAME=STRENGTH or NAME=STRENGTH@FIRST-LAST. Throws failure(bad_request).
steering_choice parse_steering_choice(std::string_view text);

} // namespace troupe
