#include "runtime/techniques/beams/beam_group.hpp"

#include "runtime/sampling/groups/random_pair.hpp"
#include "runtime/techniques/beams/beam_draws.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

double penalty_of(std::span<const token_penalty> penalties, token_id id) {
  const auto found = std::ranges::lower_bound(penalties, id, {}, &token_penalty::id);
  return found != penalties.end() && found->id == id ? found->penalty : 0;
}

} // namespace

bool beam_group::extension::operator<(const extension& other) const {
  return std::tuple(-score, parent, id) < std::tuple(-other.score, other.parent, other.id);
}

std::vector<beam_group::extension> beam_group::likeliest(const judged_rows& judged,
                                                         std::span<const std::size_t> rows_of,
                                                         std::span<const token_penalty> penalties,
                                                         const group_endings& endings) const {
  const bool no_end = endings.forbidden(judged.emitted);
  std::vector<extension> all;
  for (std::size_t i = 0; i < running_.size(); ++i)
    for (const auto& [id, logprob, score] : judged.rows[rows_of[i]].tokens.likeliest())
      if (!no_end || !std::ranges::binary_search(endings.ids(), id))
        all.push_back({running_[i].score + score - penalty_of(penalties, id), i, id, logprob});
  return all;
}

// Draws as many as transformers does, so that enough go on even if many of them end.
std::vector<beam_group::extension> beam_group::draw(judged_rows& judged, std::span<const std::size_t> rows_of,
                                                    const group_endings& endings) const {
  std::vector<drawable_beam> beams;
  for (std::size_t i = 0; i < running_.size(); ++i)
    beams.push_back({running_[i].score, &judged.rows[rows_of[i]].draws});
  const auto count = std::max<std::size_t>(2, 1 + endings.ids().size()) * rules_.width;
  const auto position = rules_.prompt_tokens + judged.emitted;
  const auto drawn = draw_extensions(
    beams, count, [&](std::uint32_t draw) { return random_numbers(rules_.seed, position, 0, draw); });
  std::vector<extension> all;
  for (const auto& e : drawn) {
    const auto& row = judged.rows[rows_of[e.beam]];
    all.push_back(
      {running_[e.beam].score + e.score, e.beam, e.id, row.tokens.logprob(row.logits[static_cast<std::size_t>(e.id)])});
  }
  return all;
}

std::vector<token_id> beam_group::extend(judged_rows& judged, std::span<const std::size_t> rows_of,
                                         std::span<const token_penalty> penalties, const group_endings& endings,
                                         token_tree& tree) {
  const auto tokens = judged.emitted + 1;
  auto all = rules_.sampled ? draw(judged, rows_of, endings) : likeliest(judged, rows_of, penalties, endings);
  std::ranges::sort(all, std::less<>());

  // Among the best `width` extensions, those that end are finished; the best `width` that do not end run on.
  std::vector<beam> next;
  std::vector<finished> ended, cut; // by a token, by their number
  std::vector<token_id> chosen;
  for (std::size_t rank = 0; rank < all.size() && chosen.size() < rules_.width; ++rank) {
    const auto& e = all[rank];
    const auto& parent = running_[e.parent];
    const auto row = rows_of[e.parent];
    auto why = endings.of(e.id, tokens);
    if (why == sampled_token::finish::none || why == sampled_token::finish::length)
      if (judged.texts && judged.texts->stops(row, e.id, tokens))
        why = sampled_token::finish::text;
    const auto logprob = parent.logprob + e.logprob;
    const auto append = [&] {
      return tree.append(parent.last, e.id, static_cast<float>(e.logprob), judged.rows[row].place);
    };
    if (why == sampled_token::finish::none)
      next.push_back({append(), e.score, logprob, row, e.id});
    else if (rank < rules_.width)
      (why == sampled_token::finish::length ? cut : ended)
        .push_back({append(), why, e.score / std::pow(static_cast<double>(tokens), rules_.length_penalty), logprob});
    if (why == sampled_token::finish::none || why == sampled_token::finish::length)
      chosen.push_back(e.id);
  }
  std::ranges::for_each(ended, [this](const finished& one) { keep(one); });
  if (!rules_.one_of_several || !full() || rules_.stopping != early_stopping::on)
    std::ranges::for_each(cut, [this](const finished& one) { keep(one); });
  running_ = std::move(next);
  if (!running_.empty()) {
    const auto best = rules_.one_of_several ? all.front().score : running_.front().score;
    done_ = full() && (rules_.stopping == early_stopping::on || !can_improve(best, tokens));
  } else {
    done_ = true;
  }
  if (done_)
    running_.clear();
  return chosen;
}

void beam_group::keep(const finished& one) {
  const auto worse = [](double score, const finished& f) { return score > f.score; };
  finished_.insert(std::upper_bound(finished_.begin(), finished_.end(), one.score, worse), one);
  if (finished_.size() > rules_.width)
    finished_.pop_back();
}

bool beam_group::can_improve(double best_score, std::size_t tokens) const {
  // A heuristic where the length matters, as in transformers.
  const bool at_full_length = rules_.stopping == early_stopping::never && rules_.length_penalty > 0;
  const auto length = static_cast<double>(at_full_length ? rules_.max_tokens : tokens);
  return best_score / std::pow(length, rules_.length_penalty) > finished_.back().score;
}

} // namespace troupe
