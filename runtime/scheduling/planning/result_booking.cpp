#include "runtime/scheduling/planning/result_booking.hpp"

#include <set>
#include <utility>

namespace troupe {

void result_booking::count(scheduler_counters& into) const {
  into.generated_tokens = generated_;
  into.accepted_tokens = accepted_;
  into.discarded_rows = discarded_;
  const auto& scores = lengths_.scores();
  constexpr double micro = 1e6;
  into.answers_predicted = scores.answers;
  into.length_log_loss = static_cast<std::uint64_t>(micro * scores.log_loss);
  into.length_marginal_log_loss = static_cast<std::uint64_t>(micro * scores.marginal_log_loss);
  into.shorter_answers = scores.deciles.front();
  into.longer_answers = scores.deciles.back();
}

void result_booking::book(const step_result& result) {
  table_.changed();
  std::set<sequence_id> with_guesses;
  for (auto& outcome : result.judged) {
    accepted_ += static_cast<std::uint64_t>(outcome.accepted);
    with_guesses.insert(outcome.sequence);
    if (auto* s = table_.find(outcome.sequence)) {
      keep_line(*s, outcome);
      guesses_.judged(*s, outcome.choices);
    }
  }
  for (auto& sampled : result.sampled)
    book(sampled, with_guesses.contains(sampled.sequence));
  for (auto& outcome : result.groups)
    book(outcome);
  for (const auto id : result.at_judge)
    if (auto* g = table_.find_group(id.request))
      g->at_judge = true;
  for (auto& failed : result.failed)
    if (table_.find_group(failed.sequence.request))
      table_.cancel(failed.sequence.request);
    else
      table_.end(failed.sequence);
}

void result_booking::keep_line(scheduled_sequence& s, const judged_guesses& outcome) {
  const auto tree = std::exchange(s.tree, nullptr);
  if (!tree || !s.running())
    return;
  const auto last_known = static_cast<std::int32_t>(tree->line_of.size()) - 1 - outcome.guesses;
  table_.notices().keep(tree->keep(last_known + outcome.last));
  s.right_guesses = tree->path_to(last_known + outcome.last, last_known + 1);
}

void result_booking::learn(const scheduled_sequence& s, bool cut) {
  if (!s.expected || s.answered() == 0)
    return;
  lengths_.learn(s.expected->signs, s.answered(), cut, s.expected->length);
  if (ended_.size() < load_report::most_ended)
    ended_.push_back({s.id.request, s.answered(), cut});
}

void result_booking::stopped(sequence_id id) {
  if (const auto* s = table_.find(id))
    learn(*s, false);
  table_.end(id);
}

void result_booking::book(const sequence_sample& sampled, bool had_guesses) {
  auto* s = table_.find(sampled.sequence);
  if (!s) {
    ++discarded_;
    return;
  }
  s->tokens.push_back(sampled.token.id);
  s->mirostat_mu = sampled.token.mirostat_mu;
  ++generated_;
  if (!had_guesses)
    guesses_.append(*s, sampled.token.id);
  if (sampled.more)
    return;
  --s->samples_in_flight;
  s->deferred = false;
  if (std::exchange(s->guesses, 0) > 0 && s->running())
    s->planned = s->known() - 1; // what was computed for wrong guesses will be overwritten
  if (sampled.token.finish != sampled_token::finish::none) {
    learn(*s, sampled.token.finish == sampled_token::finish::length);
    table_.end(sampled.sequence);
  }
}

// What was computed for guesses is lost: the rows behind the known tokens will be overwritten.
void result_booking::defer(sequence_id id) {
  if (auto* g = table_.find_group(id.request)) {
    g->deferred = true;
  } else if (auto* s = table_.find(id)) {
    s->deferred = true;
    s->tree.reset();
    if (std::exchange(s->guesses, 0) > 0 && s->running())
      s->planned = s->known();
  }
}

// The first child of each parent goes on in its place, with its blocks; others, and those that begin anew, are forked
// from it.
void result_booking::book(const group_outcome& outcome) {
  auto* found = table_.find_group(outcome.request);
  if (!found) {
    ++discarded_;
    return;
  }
  if (outcome.children.empty()) {
    generated_ += outcome.told ? 1 : 0;
    return table_.cancel(outcome.request);
  }
  auto& g = *found;
  const auto parents = std::exchange(g.members, {});
  g.judging = g.deferred = g.at_judge = false;
  ++g.judged;
  g.losses = 0;
  std::vector<bool> goes_on(parents.size());
  for (auto& child : outcome.children)
    goes_on[child.parent] = goes_on[child.parent] || child.anew.empty();
  std::vector<sequence_id> ended;
  for (std::size_t i = 0; i < parents.size(); ++i)
    if (!goes_on[i]) {
      ended.push_back(parents[i]);
      table_.spare(table_.at(parents[i]), g);
    }
  for (auto& child : outcome.children) {
    const auto parent = parents[child.parent];
    const bool first = child.anew.empty() && goes_on[child.parent];
    if (first)
      goes_on[child.parent] = false;
    g.members.push_back(first                  ? parent
                          : child.anew.empty() ? table_.fork(table_.at(parent), g)
                                               : begin_anew(table_.at(parent), g, child));
  }
  for (const auto id : ended)
    table_.drop(table_.at(id));
  for (std::size_t i = 0; i < g.members.size(); ++i)
    if (outcome.children[i].anew.empty())
      table_.at(g.members[i]).tokens.push_back(outcome.children[i].token);
  generated_ += outcome.told ? 1 : outcome.children.size();
  table_.settle(g);
}

sequence_id result_booking::begin_anew(const scheduled_sequence& parent, sequence_group& g, const group_child& child) {
  std::vector<token_id> tokens(parent.tokens.begin(), parent.tokens.begin() + parent.prompt_tokens());
  tokens.insert(tokens.end(), child.anew.begin(), child.anew.end());
  return table_.fork(parent, g, std::move(tokens));
}

} // namespace troupe
