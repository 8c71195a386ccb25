// Monte-Carlo tree search for the answers with the highest value: the log-probability, divided by a power of the length,
// or what a reward model gives.
// A simulation begins behind a beginning that search_tree chooses, is drawn to its end as any answer of the request
// would be (greedily at temperature 0), and its value goes back up the tree. Several run side by side as the sequences of
// a group, in step; one that ends makes room for the next, which takes over the blocks of whichever of them begins most
// alike. Each is drawn with random numbers of its own, and which ones run depends on nothing but the request.
//
// A row is judged once: the first one of a simulation also tells the tree what may follow there, and which of that ends
// an answer, which costs nothing more. A greedy simulation tells it of all its rows, as far as the tree may grow: what
// begins along its way would go on as it does, so that no two find the same.
//
// Values of a reward model are waited for (`awaited`) before the next simulations begin, so that when they come changes
// nothing. What may end an answer at once is then a simulation of its own, without a row, once the tree selects it: so
// many answers are judged as there are simulations, and no more.
#pragma once

#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/groups/group_endings.hpp"
#include "runtime/sampling/groups/row_likelihoods.hpp"
#include "runtime/sampling/groups/search_tree.hpp"
#include "runtime/sampling/stop_matcher.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

class tree_search final : public group_strategy {
public:
  tree_search(std::shared_ptr<const sampling_params> params, std::vector<token_id> eos_ids,
              std::span<const token_id> prompt, token_text_ptr text = {});

  using group_strategy::judge;
  std::vector<group_child> judge(rows logits, rows allowed, sampling_scratch& scratch) override;

  std::vector<std::vector<token_id>> awaited() const override;
  std::vector<group_child> go_on(std::span<const double> values) override;

  /// The score is the value.
  std::vector<hypothesis> results() const override { return best_; }

  /// Answers that were found, those that are in results() more than once included.
  std::size_t found() const { return found_; }

private:
  struct simulation {
    search_tree::node begins = search_tree::root;
    sequence_sampler law;
    std::optional<stop_matcher> text; // of a request with stop strings
    std::vector<sampled_token> tokens;
    double logprob = 0;
    bool at_leaf = true; // its row is the first one behind what it begins with
    bool ended = false;
  };

  /// An answer whose value is not known yet.
  struct judging {
    search_tree::node of = search_tree::root;
    std::vector<sampled_token> tokens;
    double logprob = 0;
  };

  simulation begin(search_tree::node n);
  std::vector<group_child> advance();
  void start(std::size_t most);
  std::vector<search_tree::option> expand(const simulation& s, const row_likelihoods& row,
                                          std::span<const float> logits, std::span<const float> allowed,
                                          sampling_scratch& scratch);
  void follow(simulation& s, std::span<const search_tree::option> options);
  void draw(simulation& s, const row_likelihoods& row, std::span<const float> logits, std::span<const float> allowed,
            std::span<const search_tree::option> options, sampling_scratch& scratch);
  void end(simulation& s, bool found, std::span<const search_tree::option> options);
  enum sampled_token::finish finish_of(token_id id, std::size_t tokens, const std::optional<stop_matcher>& text) const;
  double value(double logprob, std::size_t tokens) const;
  void keep(std::vector<sampled_token> tokens, double logprob, double score);

  std::shared_ptr<const sampling_params> params_;
  std::vector<token_id> eos_ids_;
  std::vector<token_id> prompt_;
  token_text_ptr text_;
  group_endings endings_;
  search_tree tree_;
  std::vector<std::vector<token_logprob>> tops_; // of expanded nodes, in the order of expansion
  std::vector<std::uint32_t> place_;             // in it, by node
  std::vector<simulation> running_;
  std::vector<std::vector<token_id>> judged_rows_; // answers whose rows the last call of judge has seen
  std::vector<group_child> children_;              // of them, so far
  std::vector<judging> judging_;
  std::map<search_tree::node, enum sampled_token::finish> ends_; // continuations that are answers, to be judged yet
  int begun_ = 0;
  std::size_t found_ = 0;
  std::vector<hypothesis> best_; // n of them, best first
  std::optional<error> why_;     // no answer could be found
};

} // namespace troupe
