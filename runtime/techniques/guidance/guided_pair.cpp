#include "runtime/techniques/guidance/guided_pair.hpp"

#include "runtime/techniques/guidance/pair_scores.hpp"

#include <limits>
#include <utility>

namespace troupe {

guided_pair::guided_pair(float scale, group_start start)
  : scale_(scale),
    sampler_(std::move(start.params), std::move(start.eos_ids), start.prompt, start.emitted, 0, start.mirostat_mu) {}

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
