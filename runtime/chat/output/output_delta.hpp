// The pieces that a chat model's text is taken apart into: content, reasoning, and calls of tools. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

struct output_delta {
  enum class kind : std::uint8_t { content, reasoning, call_begin, call_arguments };
  kind what = kind::content;
  std::string text;     // of call_begin: the function's name; else what is appended
  std::size_t call = 0; // of call_*: which, from 0
  std::string id = {};  // of call_begin

  bool operator==(const output_delta&) const = default;
};

using output_deltas = std::vector<output_delta>;

} // namespace troupe
