#include "runtime/techniques/beams/beam_search.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe {

namespace {

/// Adds the tokens that a group chose.
void penalise(std::vector<token_penalty>& penalties, std::span<const token_id> chosen, double penalty) {
  for (const auto id : chosen) {
    const auto at = std::ranges::lower_bound(penalties, id, {}, &token_penalty::id);
    if (at != penalties.end() && at->id == id)
      at->penalty += penalty;
    else
      penalties.insert(at, {id, penalty});
  }
}

} // namespace

beam_search::beam_search(const beam_options& how, std::shared_ptr<const sampling_params> params,
                         std::vector<token_id> eos_ids, std::span<const token_id> prompt, token_text_ptr text)
  : how_(how), params_(std::move(params)), endings_(*params_, eos_ids), texts_(*params_, std::move(text)) {
  if (how_.sampled || params_->shaped())
    laws_.emplace(params_, std::move(eos_ids), prompt);
  const auto groups = static_cast<std::size_t>(how_.groups);
  const beam_group::rules rules{.width = static_cast<std::size_t>(how_.width) / groups,
                                .length_penalty = how_.length_penalty,
                                .stopping = how_.stopping,
                                .max_tokens = static_cast<std::size_t>(params_->max_tokens),
                                .one_of_several = groups > 1,
                                .sampled = how_.sampled,
                                .seed = params_->seed,
                                .prompt_tokens = prompt.size()};
  groups_.assign(groups, beam_group(rules));
}

judged_rows beam_search::read(rows logits, rows allowed, sampling_scratch& scratch) {
  judged_rows result;
  result.emitted = emitted_;
  result.texts = texts_.any() ? &texts_ : nullptr;
  const auto reported = static_cast<std::size_t>(std::max(params_->logprobs, 0));
  // A group needs the best `width` extensions of a beam that do not end and that no other group penalises. How many end
  // by a stop string is not known before: transformers takes as many again, which is enough.
  const auto beams = static_cast<std::size_t>(how_.width) * (texts_.any() ? 2 : 1);
  const auto count = std::max(beams + endings_.ids().size(), reported);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (laws_) {
      result.rows.push_back(read_shaped(i, logits[i], allowed[i], count, scratch));
      continue;
    }
    row_likelihoods tokens(logits[i], allowed[i], count, scratch.tokens);
    const auto place = tree_.add_row(tokens.top(reported));
    result.rows.push_back({std::move(tokens), place});
  }
  return result;
}

judged_row beam_search::read_shaped(std::size_t i, std::span<const float> logits, std::span<const float> allowed,
                                    std::size_t count, sampling_scratch& scratch) {
  const auto reported = static_cast<std::size_t>(std::max(params_->logprobs, 0));
  judged_row row{.tokens = row_likelihoods(logits, reported, scratch.tokens), .logits = logits};
  row.place = tree_.add_row(row.tokens.top(reported));
  row.tokens.clear();
  if (how_.sampled) {
    if (laws_->read_filtered(i, logits, allowed, row.tokens, endings_.ids().size() + 1, scratch))
      row.draws.reset(scratch.tokens);
  } else if (laws_->read(i, logits, allowed, row.tokens, scratch)) {
    row.tokens.rank(logits, count, scratch.tokens);
  }
  return row;
}

std::vector<group_child> beam_search::judge(rows logits, rows allowed, sampling_scratch& scratch) {
  auto judged = read(logits, allowed, scratch);
  std::vector<token_penalty> penalties;
  std::vector<group_child> children;
  std::size_t next = 0; // judged row; at first all groups follow the prompt
  for (auto& group : groups_) {
    if (group.done())
      continue;
    std::vector<std::size_t> rows(group.running().size(), 0);
    if (emitted_ > 0)
      std::iota(rows.begin(), rows.end(), std::exchange(next, next + rows.size()));
    const auto chosen = group.extend(judged, rows, penalties, endings_, tree_);
    if (how_.diversity_penalty != 0)
      penalise(penalties, chosen, how_.diversity_penalty);
    for (const auto& beam : group.running())
      children.push_back({static_cast<std::uint32_t>(beam.row), beam.token});
  }
  ++emitted_;
  const auto found_none = [](const beam_group& group) { return group.best().empty(); };
  if (children.empty() && std::ranges::all_of(groups_, found_none))
    throw laws_ ? nothing_allowed(*params_) : failure(errc::internal, nothing_to_choose);
  if (laws_)
    laws_->advance(children);
  texts_.advance(children, emitted_);
  return children;
}

std::vector<hypothesis> beam_search::results() const {
  std::vector<beam_group::finished> all;
  for (const auto& group : groups_)
    all.insert(all.end(), group.best().begin(), group.best().end());
  std::ranges::stable_sort(all, std::greater<>(), &beam_group::finished::score);
  all.resize(std::min(all.size(), static_cast<std::size_t>(params_->n)));
  std::vector<hypothesis> result;
  for (const auto& one : all)
    result.push_back({tree_.path(one.last, one.why), one.logprob, one.score});
  return result;
}

} // namespace troupe
