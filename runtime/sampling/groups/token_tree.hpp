// The tokens of all sequences of a group, which share their beginnings. It is a tree that only grows: one node of 16
// bytes for each token that was ever part of a running sequence. A fork copies nothing.
#pragma once

#include "runtime/sampling/sampler.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

class token_tree {
public:
  /// A sequence: its last token. `root` has none.
  using leaf = std::uint32_t;
  static constexpr leaf root = 0;

  /// The alternatives of one judged row, which all tokens chosen from it share; returns its place.
  std::uint32_t add_row(std::vector<token_logprob> top);

  leaf append(leaf parent, token_id id, float logprob, std::uint32_t row);

  /// The sequence's tokens, the last of them with `finish`.
  std::vector<sampled_token> path(leaf last, enum sampled_token::finish finish) const;

private:
  struct node {
    leaf parent = root;
    token_id id = 0;
    float logprob = 0;
    std::uint32_t row = 0; // in rows_, if that is not empty
  };

  std::vector<node> nodes_;                      // of leaf i: nodes_[i - 1]
  std::vector<std::vector<token_logprob>> rows_; // empty if no alternatives are asked for
};

} // namespace troupe
