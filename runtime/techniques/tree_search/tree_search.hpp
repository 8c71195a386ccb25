// Monte-Carlo tree search for the answers with the highest value. The value is the log-probability divided by a power
// of the length, or what a judge gives. search_tree chooses the beginning of a simulation. The simulation then
// draws an answer to its end, as any answer of the request (greedily at temperature 0), and the tree learns its value.
// Several simulations run side by side as the sequences of a group. When one ends, the next takes its place and the
// blocks of the sequence that begins most alike. Each draws with random numbers of its own, and the request alone
// decides which ones run.
//
// A row of logits is used once. The first row of a simulation also tells the tree which tokens may follow, and which of
// these end an answer; that costs nothing more. A greedy simulation tells it this for all its rows, as far as the tree
// may grow. Another greedy simulation that began on this path would follow it to the same answer; as the tree knows the
// path, it begins elsewhere.
//
// If a judge gives the values, the next simulations begin only when all values are there (`awaited`), so it does
// not matter when they come. A token that ends an answer at once is then a simulation of its own, without a row, when
// the tree selects it. So the judge values as many answers as there are simulations.
#pragma once

#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/groups/group_endings.hpp"
#include "runtime/sampling/groups/row_likelihoods.hpp"
#include "runtime/sampling/stop_matcher.hpp"
#include "runtime/techniques/tree_search/search_tree.hpp"
#include "runtime/techniques/tree_search/technique.hpp"

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
  tree_search(const search_options& how, group_start start);

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

  search_options how_;
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
