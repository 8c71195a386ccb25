// Texts that an answer must never contain, however they are cut into tokens. Holds Aho and Corasick's automaton over
// bytes, and for each of its states the tokens that would complete a text. All guides, answers and threads share it.
#pragma once

#include "runtime/guide/matching/vocabulary.hpp"
#include "runtime/support/types.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::guides {

class banned_texts {
public:
  static constexpr std::size_t most_texts = 4096, most_bytes = 64 << 10;

  /// Throws failure(bad_request) if there are too many, or one is empty.
  banned_texts(const std::vector<std::string>& texts, std::shared_ptr<const guide_vocabulary> vocabulary);

  using state = std::uint32_t; // 0: nothing of any text is there
  /// Nothing: `bytes` complete one of the texts.
  std::optional<state> advance(state from, std::string_view bytes) const;
  /// The tokens that complete one there, sorted.
  std::span<const token_id> forbidden(state at) const;

private:
  static constexpr state hit = ~state{0};
  struct node {
    state fallback = 0; // of the longest proper suffix
    bool complete = false;
  };

  state step(state from, unsigned char byte) const;
  std::vector<token_id> find_forbidden(state at) const;

  std::vector<node> nodes_;
  std::unordered_map<std::uint64_t, state> edges_; // by node and byte
  std::shared_ptr<const guide_vocabulary> vocabulary_;

  mutable std::mutex lock_; // of what follows
  mutable std::unordered_map<state, std::vector<token_id>> forbidden_;
};

/// Where one answer's text stands. A plain value. Special tokens may or may not be shown in it: both texts are
/// followed.
class banned_state {
public:
  explicit banned_state(const banned_texts* texts) : texts_(texts) {} // null: nothing is banned

  bool forbids(token_id token) const;
  /// Calls `use` with each list of forbidden tokens.
  template <class Use>
  void each_list(Use use) const {
    if (!texts_)
      return;
    use(texts_->forbidden(shown_));
    if (hidden_ != shown_)
      use(texts_->forbidden(hidden_));
  }
  void advance(std::string_view bytes, bool special);

private:
  const banned_texts* texts_;
  banned_texts::state shown_ = 0, hidden_ = 0; // with and without special tokens
};

} // namespace troupe::guides
