#include "runtime/sampling/groups/group_laws.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

namespace {

constexpr auto excluded = -std::numeric_limits<float>::infinity();

} // namespace

group_laws::group_laws(std::shared_ptr<const sampling_params> params, std::vector<token_id> eos_ids,
                       std::span<const token_id> prompt) {
  laws_.emplace_back(std::move(params), std::move(eos_ids), prompt, std::span<const token_id>(), 0);
}

std::span<const float> group_laws::edit(std::size_t row, std::span<const float> logits, std::span<const float> allowed,
                                        const row_likelihoods& of, sampling_scratch& scratch) const {
  auto& scores = scratch.row;
  scores.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    scores[i] = allowed[i] > excluded ? static_cast<float>(of.logprob(logits[i])) : excluded;
  return laws_[row].edited(scores, scores);
}

bool group_laws::read(std::size_t row, std::span<const float> logits, std::span<const float> allowed,
                      const row_likelihoods& of, sampling_scratch& scratch) const {
  const auto scores = edit(row, logits, allowed, of, scratch);
  if (std::ranges::none_of(scores, [](float x) { return x > excluded; }))
    return false;
  scratch.tokens.reset(scores);
  return true;
}

bool group_laws::read_filtered(std::size_t row, std::span<const float> logits, std::span<const float> allowed,
                               const row_likelihoods& of, std::size_t least, sampling_scratch& scratch) const {
  const auto scores = edit(row, logits, allowed, of, scratch);
  if (std::ranges::none_of(scores, [](float x) { return x > excluded; }))
    return false;
  laws_[row].filter(scores, least, scratch.tokens);
  return true;
}

void group_laws::advance(std::span<const group_child> children) {
  std::vector<std::size_t> uses(laws_.size());
  for (const auto& child : children)
    ++uses[child.parent];
  std::vector<sequence_sampler> next;
  next.reserve(children.size());
  for (const auto& child : children) {
    auto& law = laws_[child.parent];
    if (--uses[child.parent] == 0)
      next.push_back(std::move(law));
    else
      next.push_back(law);
    next.back().append(child.token);
  }
  laws_ = std::move(next);
}

} // namespace troupe
