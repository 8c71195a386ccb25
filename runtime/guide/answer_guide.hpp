// A guide as the answers of a model follow it: behind the text at which it begins, with tokens that are forced where
// its text is, and with the tokens that end an answer. An answer_guide is shared by all answers and threads; an
// answer_state belongs to one answer, and is a function of its tokens.
#pragma once

#include "runtime/guide/guide.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::guides {

class answer_guide {
public:
  /// Compiles. `tokens` are those of `vocabulary`. Throws failure(bad_request) whose param is the source's field.
  answer_guide(const guide_source& source, std::shared_ptr<const tokenizer> tokens,
               std::shared_ptr<const guide_vocabulary> vocabulary, const guide_limits& limits,
               std::shared_ptr<guide_pool> pool = nullptr);

  const guide_vocabulary& vocabulary() const { return guide_->vocabulary(); }
  std::size_t memory() const { return guide_->memory(); } // bytes

  static constexpr std::size_t longest_after = 1024; // bytes of guide_source::after

private:
  friend class answer_state;

  /// How far `bytes` brings the search for `after`, if `matched` bytes of it were found: whether it ends in them,
  /// where, or how many are found then.
  struct progress {
    bool found = false;
    std::size_t at = 0;
  };
  progress search(std::size_t matched, std::string_view bytes) const;
  /// Tokens with the end of `after` and more, which the guide forbids.
  std::span<const token_id> forbidden(std::size_t matched) const;
  std::optional<token_id> next_token(std::string_view run, std::string_view forced) const;

  std::shared_ptr<const guide> guide_;
  std::shared_ptr<const tokenizer> tokens_;
  std::string after_;
  std::vector<std::size_t> border_; // of each prefix of after_: its longest proper suffix that is a prefix
  std::vector<std::uint64_t> free_; // all tokens but those that end a text; empty without after_

  mutable std::mutex lock_; // of what follows
  mutable std::map<std::size_t, std::vector<token_id>> forbidden_;
};

/// A plain value: a copy is a fork. Functions that are not const throw as guide_state's.
class answer_state {
public:
  explicit answer_state(std::shared_ptr<const answer_guide> g);

  const guide_vocabulary& vocabulary() const { return guide_->vocabulary(); }

  /// Takes a token that does not end the answer. False, and nothing changes, if it is forbidden.
  bool advance(token_id token);

  /// Whether the answer may end here.
  bool can_end() { return guided_ && state_.can_end(); }

  /// The tokens that may follow but do not end the answer, one bit per id, `vocabulary().words()` words.
  void mask(std::span<std::uint64_t> out);

  /// The token that must follow: the next one of the text that must, as the tokenizer cuts it. Nothing where the guide
  /// leaves a choice, or where that token may be longer because of what stands behind the text.
  std::optional<token_id> forced();

private:
  std::shared_ptr<const answer_guide> guide_;
  guide_state state_;
  bool guided_;             // else `after` has not been found
  std::size_t matched_ = 0; // bytes of it
  std::string run_;         // the end of the text, as far as it was forced
};

} // namespace troupe::guides
