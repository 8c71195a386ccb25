// Follows the texts of a group's sequences for stop strings: which next token completes one. For answers that are sent
// token by token, the transcript (runtime/engine) does this.
#pragma once

#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/stop_matcher.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace troupe {

class group_texts {
public:
  /// At first of the prompt, whose own text does not count. Without stop strings, or `text`, nothing stops.
  group_texts(const sampling_params& params, token_text_ptr text);

  bool any() const { return !texts_.empty(); }

  /// Whether `id`, the token number `tokens` of its answer, completes a stop string of sequence `row`.
  bool stops(std::size_t row, token_id id, std::size_t tokens) const;

  /// The sequences that go on, each after one more token, the one of its answer with number `tokens`.
  void advance(std::span<const group_child> children, std::size_t tokens);

private:
  stop_matcher after(std::size_t row, token_id id, std::size_t tokens, bool& stopped) const;

  token_text_ptr text_;
  std::size_t min_tokens_;
  std::vector<stop_matcher> texts_; // of the running sequences; empty: there are no stop strings
};

} // namespace troupe
