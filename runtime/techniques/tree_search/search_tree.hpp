// The tree of a Monte-Carlo tree search. Decides which beginning of an answer is worth another simulation. Selection is
// PUCT (Rosin 2011; Silver et al. 2017). The value of a token is that of the best answer found behind it, in units from
// the mean to the best of all. Half of its prior is the model's probability, the other half is the same for all tokens,
// so that unlikely ones are tried, too. A beginning behind which all answers are known is not selected again.
// Deterministic.
#pragma once

#include "runtime/support/types.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

class search_tree {
public:
  using node = std::uint32_t;
  static constexpr node root = 0;

  explicit search_tree(double exploration) : exploration_(exploration), nodes_(1) { nodes_[root].open = 1; }

  /// A token that may follow, likeliest first.
  struct option {
    token_id token = 0;
    double logprob = 0;
  };

  /// A beginning whose continuations are not known, to be the next simulation's; none if all are under way or known.
  std::optional<node> select();

  /// What may follow a beginning that was selected.
  void expand(node n, std::span<const option> options);

  /// The simulation that was selected to begin with `n` goes on with one of its options, as any that began there would.
  /// Returns what it now begins with.
  node descend(node n, std::size_t option);

  /// The simulation that was selected to begin with `n` has found an answer of this value; -infinity: none.
  void finish(node n, double value);

  /// The continuation with one of its options is an answer, of this value.
  void close(node n, std::size_t option, double value);

  /// Tokens from the root.
  std::vector<token_id> path(node n) const;
  node child(node n, std::size_t option) const { return nodes_[n].first + static_cast<node>(option); }
  node parent(node n) const { return nodes_[n].parent; }
  token_id token(node n) const { return nodes_[n].token; }
  double logprob(node n) const { return nodes_[n].logprob; } // of its token
  std::size_t depth(node n) const { return nodes_[n].depth; }
  std::size_t size() const { return nodes_.size(); }

private:
  static constexpr double none = -std::numeric_limits<double>::infinity();

  struct entry {
    node parent = root;
    node first = 0; // its options are neighbours
    token_id token = 0;
    std::uint32_t depth = 0;
    std::uint32_t options = 0;
    std::uint32_t visits = 0, under_way = 0; // simulations through it: finished ones, others
    double logprob = 0, prior = 0;
    double best = none;
    std::uint32_t open = 0; // beginnings from it on, itself included, that could be selected
    bool expanded = false;
  };

  double promise(const entry& e, double visits) const;
  void add(node n, double value);

  /// Calls `change` with a node and all before it.
  template <class Change>
  void upwards(node n, Change change) {
    for (;; n = nodes_[n].parent) {
      change(nodes_[n]);
      if (n == root)
        return;
    }
  }

  double exploration_;
  std::vector<entry> nodes_;
  double sum_ = 0, best_ = none; // of all values
  std::size_t values_ = 0;
};

} // namespace troupe
