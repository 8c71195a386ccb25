// Bounds the reasoning of an answer. When its budget is spent, the text that closes it is forced, token by token. All
// answers and threads share `thinking_rules`. A `thinking_state` belongs to one answer, and is a function of its tokens
// and of the request.
#pragma once

#include "runtime/guide/guide_source.hpp"
#include "runtime/guide/matching/vocabulary.hpp"
#include "runtime/guide/text_finder.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/support/types.hpp"

#include <cstddef>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

namespace troupe::guides {

class thinking_rules {
public:
  /// Throws failure(bad_request) if the vocabulary cannot write what closes the reasoning.
  thinking_rules(thinking_marks marks, const tokenizer& tokens, const guide_vocabulary& vocabulary);

  const thinking_marks& marks() const { return marks_; }
  const text_finder& end() const { return end_; }
  /// The token that goes on with what closes the reasoning, behind its first `at` bytes.
  token_id closing_token(std::size_t at) const { return closing_[at]; }
  /// How many tokens that takes from there.
  std::size_t closing_tokens(std::size_t at) const { return tokens_[at]; }

private:
  thinking_marks marks_;
  text_finder end_;
  std::vector<token_id> closing_;   // by the bytes that are there
  std::vector<std::size_t> tokens_; // the same
};

/// What a request allows.
struct thinking_limits {
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  std::size_t budget = none; // tokens of reasoning
  std::size_t answer = none; // tokens of the whole answer, a few of which are kept for what follows the reasoning
};

/// A plain value: a copy is a fork.
class thinking_state {
public:
  /// Null rules: nothing is bounded.
  thinking_state(const thinking_rules* rules, thinking_limits limits);

  /// Whether the reasoning must be closed: then `next` is the only token that may follow.
  bool closes() const;
  token_id next() const { return rules_->closing_token(now_ == in::closing ? closed_ : matched_); }
  /// Whether the answer is within its reasoning, where it must not end.
  bool thinks() const { return now_ == in::reasoning || now_ == in::closing; }

  /// Takes a token of the answer; if it `closes`, that is `next`.
  void advance(std::string_view bytes);

private:
  enum class in : std::uint8_t { opening, reasoning, closing, rest };

  void open(std::string_view bytes);
  void think(std::string_view bytes);

  const thinking_rules* rules_;
  thinking_limits limits_;
  in now_ = in::rest;
  std::size_t taken_ = 0;   // tokens of the answer
  std::size_t thought_ = 0; // of these, tokens of reasoning
  std::size_t matched_ = 0; // bytes of the mark that is looked for
  std::size_t closed_ = 0;  // bytes of what closes it
  utf8_state utf8_;         // a character is not cut
};

} // namespace troupe::guides
