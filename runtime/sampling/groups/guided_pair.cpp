#include "runtime/sampling/groups/guided_pair.hpp"

#include "runtime/sampling/groups/pair_scores.hpp"

#include <limits>
#include <utility>

namespace troupe {

guided_pair::guided_pair(std::shared_ptr<const sampling_params> params, std::vector<token_id> eos_ids,
                         std::span<const token_id> prompt, std::span<const token_id> emitted, float mirostat_mu)
  : scale_(params->guidance_scale), sampler_(std::move(params), std::move(eos_ids), prompt, emitted, 0, mirostat_mu) {}

std::vector<group_child> guided_pair::judge(rows logits, rows allowed, sampling_scratch& scratch) {
  scores_.resize(logits[0].size());
  guidance_scores(logits[0], logits[1], scale_, scores_);
  constexpr auto never = -std::numeric_limits<float>::infinity();
  if (allowed[0].data() != logits[0].data())
    for (std::size_t i = 0; i < scores_.size(); ++i)
      if (allowed[0][i] == never)
        scores_[i] = never;
  last_ = sampler_.sample(logits[0], scores_, scratch);
  if (last_.finish != sampled_token::finish::none)
    return {};
  return {{0, last_.id}, {1, last_.id}};
}

} // namespace troupe
