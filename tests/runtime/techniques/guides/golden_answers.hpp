// Guides over the vocabulary of a golden checkpoint, as answers follow them.
#pragma once

#include "runtime/techniques/guides/answer_guide.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/test_data.hpp"

#include <memory>
#include <vector>

namespace troupe::guides {

constexpr token_id begin_of_text = 0, end_of_text = 1, end_of_turn = 4;

inline std::shared_ptr<const tokenizer> golden_tokens() {
  static const auto made = tokenizer::load(golden("llama-gqa"));
  return made;
}

inline std::shared_ptr<const guide_vocabulary> golden_vocabulary() {
  static const auto made = guide_vocabulary::of(*golden_tokens(), std::vector{end_of_text, end_of_turn});
  return made;
}

inline std::shared_ptr<const answer_guide> answer_to(const guide_source& source) {
  return std::make_shared<const answer_guide>(source, golden_tokens(), golden_vocabulary(), guide_limits{});
}

} // namespace troupe::guides
