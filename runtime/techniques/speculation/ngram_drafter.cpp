#include "runtime/techniques/speculation/ngram_drafter.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

namespace {

constexpr token_id mark = -1;            // behind the prediction: follows nothing
constexpr std::size_t most_contexts = 4; // of a guess, longest first
constexpr std::size_t most_read = 64;    // tokens that have followed one, the latest new ones
constexpr std::size_t most_kept = 4;     // of these, the most frequent
constexpr double least_chance = 0.01;
constexpr double as_predicted = 0.95; // while all of the answer has been

/// How far what followed a context of so many tokens is believed.
double belief(std::size_t matched) {
  const auto n = static_cast<double>(std::min<std::size_t>(matched, 64));
  return n / (n + 2);
}

} // namespace

ngram_drafter::ngram_drafter(std::span<const token_id> prediction, std::size_t expected, std::size_t most)
  : most_(most),
    prediction_(prediction.begin(), prediction.end()),
    past_(std::min(prediction.size() + expected, most)) {
  if (!prediction_.empty()) // the answer is taken to begin as predicted
    place_ = 0;
  begin_text();
}

void ngram_drafter::begin_text() {
  if (prediction_.empty())
    return;
  predicted_ = std::min(prediction_.size(), most_ / 2);
  for (std::size_t i = 0; i < predicted_; ++i)
    past_.append(prediction_[i]);
  past_.append(mark);
}

void ngram_drafter::append(std::span<const token_id> tokens) {
  const bool is_prompt = !std::exchange(begun_, true);
  if (tokens.size() > most_ / 4) // of a long prompt, what would be left of it
    tokens = tokens.last(std::min(tokens.size(), most_ - std::min(past_.tokens(), most_ / 2)));
  for (const auto token : tokens) {
    if (place_ && !is_prompt && (prediction_[*place_] != token || ++*place_ == prediction_.size()))
      place_.reset();
    if (past_.tokens() >= most_)
      shorten();
    text_.push_back(token);
    past_.append(token);
  }
}

// Half of what there is room for is left. As that takes as long as it took to append it, a token costs the same on
// average.
void ngram_drafter::shorten() {
  const auto left = (most_ - predicted_) / 2;
  text_.erase(text_.begin(), text_.end() - static_cast<std::ptrdiff_t>(std::min(left, text_.size())));
  past_ = suffix_automaton(most_);
  begin_text();
  for (const auto token : text_)
    past_.append(token);
}

// What has followed the contexts of a guess: first the longest one, then shorter ones, for what the longer leave open.
void ngram_drafter::expand(const candidate& of, std::int32_t as, std::vector<candidate>& into) const {
  const auto first = into.size();
  double left = 1;
  const auto add = [&](candidate c) {
    c.parent = as;
    c.beside = into.size() > first;
    c.chance = of.chance * c.confidence;
    left -= c.confidence;
    if (c.chance >= least_chance)
      into.push_back(c);
  };
  if (of.place && *of.place < prediction_.size())
    add({.token = prediction_[*of.place], .confidence = as_predicted, .place = *of.place + 1});
  auto matched = of.matched;
  auto context = of.context;
  for (std::size_t i = 0; i < most_contexts && context != suffix_automaton::empty && left * of.chance >= least_chance;
       ++i, context = past_.shorter(context), matched = past_.length(context)) {
    struct follower {
      token_id token;
      state to;
      std::size_t count;
    };
    std::array<follower, most_kept> best{};
    std::size_t kept = 0, total = 0, read = 0;
    for (auto e = past_.first_edge(context); e != suffix_automaton::last_edge && read < most_read; ++read) {
      const auto& edge = past_.at(e);
      e = edge.next;
      const auto count = past_.occurrences(edge.to);
      total += count;
      if (edge.token == mark)
        continue;
      // The most frequent first; of equals the one that followed last.
      const auto before = [&](const follower& a) {
        return a.count > count || (a.count == count && past_.last_end(a.to) >= past_.last_end(edge.to));
      };
      auto at = kept;
      while (at > 0 && !before(best[at - 1]))
        --at;
      if (at == most_kept)
        continue;
      kept = std::min(kept + 1, most_kept);
      std::move_backward(best.begin() + static_cast<std::ptrdiff_t>(at),
                         best.begin() + static_cast<std::ptrdiff_t>(kept) - 1,
                         best.begin() + static_cast<std::ptrdiff_t>(kept));
      best[at] = {edge.token, edge.to, count};
    }
    const auto share = left * belief(matched) / static_cast<double>(std::max<std::size_t>(total, 1));
    for (const auto& f : std::span(best).first(kept))
      if (std::ranges::none_of(std::span(into).subspan(first), [&](const candidate& c) { return c.token == f.token; }))
        add({.token = f.token,
             .confidence = share * static_cast<double>(f.count),
             .context = f.to,
             .matched = matched + 1,
             .last = past_.last_end(f.to)});
  }
}

void ngram_drafter::offer(std::size_t most, std::size_t room, std::vector<offered_guess>& guesses) {
  const auto last = past_.repeated();
  std::vector<candidate> open;
  std::vector<std::size_t> depths;
  expand({.chance = 1, .context = last, .matched = past_.length(last), .place = place_}, -1, open);
  std::make_heap(open.begin(), open.end());
  while (!open.empty() && guesses.size() < room) {
    std::pop_heap(open.begin(), open.end());
    const auto best = open.back();
    open.pop_back();
    const auto as = static_cast<std::int32_t>(guesses.size());
    depths.push_back(best.parent < 0 ? 1 : depths[as_size(best.parent)] + 1);
    const bool of_prediction = best.place || (best.context != suffix_automaton::empty && in_prediction(best.context));
    guesses.push_back({best.token, best.parent, grade_of(best.confidence, best.beside), of_prediction});
    if (depths.back() >= most)
      continue;
    const auto before = open.size();
    expand(best, as, open);
    for (auto end = before + 1; end <= open.size(); ++end)
      std::push_heap(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(end));
  }
}

void ngram_drafter::propose(std::size_t most, std::vector<token_id>& guesses) {
  std::vector<offered_guess> offered;
  offer(most, 4 * most, offered);
  std::int32_t last = -1;
  for (std::size_t i = 0; i < offered.size() && guesses.size() < most; ++i)
    if (offered[i].parent == last) {
      guesses.push_back(offered[i].token);
      last = static_cast<std::int32_t>(i);
    }
}

std::size_t ngram_drafter::memory() const {
  return past_.memory() + (prediction_.capacity() + text_.capacity()) * sizeof(token_id);
}

} // namespace troupe
