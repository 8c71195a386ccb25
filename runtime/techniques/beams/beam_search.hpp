// Beam search as in transformers' generate, and diverse beam search (Vijayakumar et al. 2018), which runs it in groups.
// At each position, earlier groups choose first, and each choice of a token lowers its score for the later groups by
// diversity_penalty. A group that has ended chooses nothing. Ties go to the lower parent, then the lower id. Processors
// change the scores, and for beam sampling temperature and filters, too, in transformers' order; stop strings end a
// beam as EOS does.
#pragma once

#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/groups/group_laws.hpp"
#include "runtime/sampling/groups/group_texts.hpp"
#include "runtime/techniques/beams/beam_group.hpp"
#include "runtime/techniques/beams/technique.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

class beam_search final : public group_strategy {
public:
  beam_search(const beam_options& how, std::shared_ptr<const sampling_params> params, std::vector<token_id> eos_ids,
              std::span<const token_id> prompt, token_text_ptr text = {});

  using group_strategy::judge;
  std::vector<group_child> judge(rows logits, rows allowed, sampling_scratch& scratch) override;

  /// The score is (log-probability - penalties) / tokens ^ length_penalty, with processors that of what they make of
  /// log-probabilities.
  std::vector<hypothesis> results() const override;

private:
  judged_rows read(rows logits, rows allowed, sampling_scratch& scratch);
  judged_row read_shaped(std::size_t i, std::span<const float> logits, std::span<const float> allowed,
                         std::size_t count, sampling_scratch& scratch);

  beam_options how_;
  std::shared_ptr<const sampling_params> params_;
  group_endings endings_;
  group_texts texts_;
  std::optional<group_laws> laws_; // if anything shapes the distribution
  token_tree tree_;
  std::vector<beam_group> groups_;
  std::size_t emitted_ = 0;
};

} // namespace troupe
