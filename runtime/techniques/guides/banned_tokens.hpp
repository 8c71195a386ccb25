// Keeps banned texts out of answers, however they are cut into tokens: for each state of their automaton, the tokens that
// would complete one. All guides, answers and threads share it.
#pragma once

#include "runtime/guide/matching/vocabulary.hpp"
#include "runtime/support/text/banned_texts.hpp"
#include "runtime/support/types.hpp"

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::guides {

class banned_tokens {
public:
  /// Throws failure(bad_request) as banned_texts.
  banned_tokens(const std::vector<std::string>& texts, std::shared_ptr<const guide_vocabulary> vocabulary)
    : texts_(texts), vocabulary_(std::move(vocabulary)) {}

  using state = banned_texts::state;
  const banned_texts& texts() const { return texts_; }
  /// The tokens that complete a text there, sorted.
  std::span<const token_id> forbidden(state at) const;

private:
  std::vector<token_id> find_forbidden(state at) const;

  banned_texts texts_;
  std::shared_ptr<const guide_vocabulary> vocabulary_;

  mutable std::mutex lock_; // of what follows
  mutable std::unordered_map<state, std::vector<token_id>> forbidden_;
};

/// Where one answer's text stands. A plain value. Special tokens may or may not be shown in it: both texts are
/// followed.
class banned_state {
public:
  explicit banned_state(const banned_tokens* of) : of_(of) {} // null: nothing is banned

  bool forbids(token_id token) const;
  /// Calls `use` with each list of forbidden tokens.
  template <class Use>
  void each_list(Use use) const {
    if (!of_)
      return;
    use(of_->forbidden(shown_));
    if (hidden_ != shown_)
      use(of_->forbidden(hidden_));
  }
  void advance(std::string_view bytes, bool special);

private:
  const banned_tokens* of_;
  banned_texts::state shown_ = 0, hidden_ = 0; // with and without special tokens
};

} // namespace troupe::guides
