// Stochastic beam search: sequences sampled without replacement (Kool, van Hoof, Welling: "Stochastic Beams and Where
// to Find Them", ICML 2019). Every sequence has a Gumbel variable located at its log-probability, its perturbed
// log-probability, which is also the largest of those of all its continuations; the sequences with the num_beams
// largest are found from the top down. Of several results, the first k are a sample of size k.
//
// The next tokens of a sequence are drawn one after the other, without replacement, and their perturbed
// log-probabilities as the falling order statistics that belong to them: the same joint distribution as perturbing
// every token of the vocabulary and sorting, for a few draws instead of a random number per token. Draws are integers
// over candidates' weights, so what is drawn is as exact as in sampler.hpp.
//
// The distribution is the softmax of logits / temperature over the tokens that min_tokens and a constraint allow; with
// processors and filters, of what these make of the log-probabilities.
#pragma once

#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/groups/group_endings.hpp"
#include "runtime/sampling/groups/group_laws.hpp"
#include "runtime/sampling/groups/group_texts.hpp"
#include "runtime/sampling/groups/token_tree.hpp"
#include "runtime/sampling/groups/weighted_draws.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

class stochastic_beam_search final : public group_strategy {
public:
  stochastic_beam_search(int width, std::shared_ptr<const sampling_params> params, std::vector<token_id> eos_ids,
                         std::span<const token_id> prompt, token_text_ptr text = {});

  using group_strategy::judge;
  std::vector<group_child> judge(rows logits, rows allowed, sampling_scratch& scratch) override;

  /// The score is the perturbed log-probability; cumulative_logprob that of the distribution that was sampled, which
  /// at a temperature other than 1 is not the sum over the tokens.
  std::vector<hypothesis> results() const override;

private:
  struct sample {
    token_tree::leaf last = token_tree::root;
    double logprob = 0;
    double perturbed = 0;
    enum sampled_token::finish why = sampled_token::finish::none;
    bool in_tree = true; // else `last` is still without `token`, which follows the judged row `row`
    std::uint32_t row = 0;
    token_id token = 0;
  };

  void extend(const sample& parent, std::uint32_t row, std::vector<sample>& kept);
  bool read(std::uint32_t row, std::span<const float> logits, std::span<const float> allowed,
            sampling_scratch& scratch);
  std::vector<group_child> grow(std::span<const std::span<const float>> logits, sampling_scratch& scratch);
  std::span<const float> edit(std::span<const float> logits, std::vector<float>& row) const;
  void keep(const sample& one, std::vector<sample>& kept) const;

  std::shared_ptr<const sampling_params> params_;
  group_endings endings_;
  group_texts texts_;
  std::optional<group_laws> laws_; // if anything but temperature shapes the distribution
  std::uint64_t prompt_tokens_;
  std::size_t width_;
  token_tree tree_;
  std::vector<sample> samples_; // ended and running, by descending perturbed log-probability; at most width_
  weighted_draws draws_;        // of the row at hand
  std::size_t emitted_ = 0;
};

} // namespace troupe
