// Chooses the experts of each row of a mixture from the router's logits, and lists the rows of each expert. A row's
// choice depends on its own logits alone. Plain functions for the decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

enum class router_scores : std::uint8_t {
  softmax, // over all experts
  chosen,  // softmax over the chosen ones: what softmax and `renormalise` give, computed as gpt-oss does
  sigmoid,
  root_softplus, // sqrt(log(1 + e^logit))
  mixed // SparseMixer (https://arxiv.org/abs/2409.12136): each weight is a softmax over the experts nearly as good that
        // no earlier choice took
};

struct expert_config {
  int count = 0;            // 0: the model has no experts
  int chosen = 0;           // of each row
  int ffn = 0;              // of one expert
  int shared_ffn = 0;       // of the expert that every row has beside the chosen ones; 0: none
  bool shared_gate = false; // its result is multiplied by the sigmoid of a gate
  bool bias = false;        // experts have biases
  bool router_bias = false; // added to the logits
  bool correction = false;  // a bias that is added to scores for the choice only
  router_scores scores = router_scores::softmax;
  float margin = 0;          // mixed: how much less is nearly as good, as a share
  bool renormalise = false;  // the weights of a row sum to 1
  float scale = 1;           // of the weights
  bool weigh_inputs = false; // weights multiply what experts read instead of what they give
  int groups = 1;            // experts are chosen within the best groups of neighbours
  int chosen_groups = 1;
  bool apart = false; // router, experts and shared expert read norms of their own, and what the latter two give is
                      // normed before it is added; weights are scaled for each expert
  bool group_by_two = false; // a group is as good as its two best experts; else as its best
  int nulls = 0;             // of `count`, the last ones: they give what they read
  bool shortcut = false;     // beside a layer's MLP, and added behind the next layer
  float cap = 0;             // logits are cap * tanh(logit / cap); 0: not
  bool early = false;        // the router reads what the layer gets, ahead of the attention's norm
  int always = 0; // of `count` and of `chosen`, the last ones: every row has them, and they are weighed with the others

  bool operator==(const expert_config&) const = default;
};

/// The chosen experts of one row, best first, and their weights.
struct expert_choice {
  std::vector<int> experts;
  std::vector<float> weights;
};

/// `logits` [count]; `correction` [count - always], or empty; `given` [chosen], or empty: the experts, if they do not depend on
/// scores. Of equal scores, the lower expert wins; NaN counts as the lowest.
expert_choice choose_experts(const expert_config& config, std::span<const float> logits,
                             std::span<const float> correction = {}, std::span<const int> given = {});

/// The rows that chose an expert, ascending, and its weight for each.
struct expert_rows {
  int expert = 0;
  std::vector<std::int32_t> rows;
  std::vector<float> weights;
};

/// The experts that some row chose, ascending. `logits` [rows, count]; `given` [rows, chosen], or empty.
std::vector<expert_rows> group_by_expert(const expert_config& config, std::span<const float> logits,
                                         std::span<const float> correction = {}, std::span<const int> given = {});

} // namespace troupe
