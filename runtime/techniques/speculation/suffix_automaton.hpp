// Every text that occurs in a sequence of tokens, and what has followed it: the suffix automaton (Blumer et al. 1985),
// which grows by a token at a time in constant time on average. A state stands for texts that end at the same places,
// of which the longer ones end with the shorter ones. At most two states and three transitions for each token.
// Single-threaded.
#pragma once

#include "runtime/support/types.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

class suffix_automaton {
public:
  using state = std::uint32_t;
  static constexpr state empty = 0;                // of the empty text
  static constexpr state none = 0xffffffff;        // a text that does not occur
  static constexpr std::size_t counted = 16;       // contexts of a token, longest first, that count it
  static constexpr std::uint32_t last_edge = none; // there are no more

  /// `expected`: tokens, for which memory is reserved.
  explicit suffix_automaton(std::size_t expected = 0);

  void append(token_id token);
  std::size_t tokens() const { return tokens_; }

  /// The state of the longest text that ends the sequence and also occurs before.
  state repeated() const { return last_ == empty ? empty : states_[last_].shorter; }

  /// The state of the longest text that ends those of `s` and also occurs elsewhere. `s` is not `empty`.
  state shorter(state s) const { return states_[s].shorter; }

  /// What a state's texts are: tokens of the longest, tokens up to the end of the first and of the last occurrence, and
  /// how often they occur. In long repetitions, occurrences of the shortest texts may be missed.
  std::size_t length(state s) const { return states_[s].length; }
  std::size_t first_end(state s) const { return states_[s].first_end; }
  std::size_t last_end(state s) const { return states_[s].last_end; }
  std::size_t occurrences(state s) const { return states_[s].occurrences; }

  /// The state of the texts of `s` with `token` behind; `none` if it never followed.
  state next(state s, token_id token) const;

  /// What has followed the texts of `s`, the latest new one first: from `first_edge` by `edge::next` to `last_edge`.
  struct edge {
    token_id token = 0;
    state to = 0;
    std::uint32_t next = last_edge;
  };
  std::uint32_t first_edge(state s) const { return states_[s].edges; }
  const edge& at(std::uint32_t e) const { return edges_[e]; }

  std::size_t memory() const; // bytes

private:
  struct node {
    std::uint32_t length = 0;
    state shorter = none;
    std::uint32_t edges = last_edge;
    std::uint32_t occurrences = 0, first_end = 0, last_end = 0;
  };

  state clone(state of, std::uint32_t length);
  std::size_t place(state s, token_id token) const;
  void lead(state s, token_id token, state to);
  void grow();

  std::vector<node> states_;
  std::vector<edge> edges_;
  // Open addressing, from state and token to edge + 1; 0: free. The state of an edge is kept beside it.
  std::vector<std::uint32_t> table_;
  std::vector<state> from_; // of each edge
  state last_ = empty;
  std::uint32_t tokens_ = 0;
};

} // namespace troupe
