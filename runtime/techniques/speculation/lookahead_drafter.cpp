#include "runtime/techniques/speculation/lookahead_drafter.hpp"

#include <algorithm>

namespace troupe {

// -- n-grams ----------------------------------------------------------------------------------------------------------

void short_ngram::push(token_id t) {
  if (size_ == longest)
    std::shift_left(tokens_.begin(), tokens_.end(), 1);
  else
    ++size_;
  tokens_[size_ - 1] = t;
}

void ngram_pool::add(std::span<const token_id> ngram) {
  enter(key_of(ngram[0]), ngram.subspan(1));
  if (ngram.size() > 2)
    enter(key_of(ngram[0], ngram[1]), ngram.subspan(2));
}

void ngram_pool::enter(key k, std::span<const token_id> tokens) {
  const auto [found, is_new] = pool_.try_emplace(k);
  // Keeps a longer one that begins in the same way.
  const auto old = found->second.tokens();
  if (old.size() < tokens.size() || !std::equal(tokens.begin(), tokens.end(), old.begin())) {
    found->second = short_ngram();
    for (const auto t : tokens)
      found->second.push(t);
  }
  if (!is_new)
    return;
  oldest_.push_back(k);
  if (oldest_.size() > most_keys_) {
    pool_.erase(oldest_.front());
    oldest_.pop_front();
  }
}

ngram_pool::continuation ngram_pool::find(std::optional<token_id> before, token_id last) const {
  if (before)
    if (const auto found = pool_.find(key_of(*before, last)); found != pool_.end())
      return {found->second.tokens(), true};
  const auto found = pool_.find(key_of(last));
  return {found == pool_.end() ? std::span<const token_id>() : found->second.tokens(), false};
}

// -- lookahead_drafter ------------------------------------------------------------------------------------------------

void lookahead_drafter::append(std::span<const token_id> tokens) {
  for (const auto t : tokens) {
    text_.push(t);
    recent_[static_cast<std::size_t>(known_++ % recent_.size())] = t;
    if (keeps_ngrams_ && text_.tokens().size() == short_ngram::longest)
      pool_.add(text_.tokens());
  }
  advance(tokens.size() - std::min(tokens.size(), advanced_));
  advanced_ = 0;
  fill();
}

void lookahead_drafter::advance(std::size_t tokens) {
  const auto dropped = std::min(tokens, window_.size());
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(dropped));
}

// The first guesses are tokens of the text: any will do, but these are likelier than others.
void lookahead_drafter::fill() {
  if (known_ == 0)
    return;
  const auto choices = std::min<std::uint64_t>(known_, recent_.size());
  for (auto place = known_; window_.size() < window; ++place)
    window_.emplace_back(recent_[static_cast<std::size_t>(place * 0x9e3779b97f4a7c15 % choices)]);
}

void lookahead_drafter::propose(std::size_t most, std::vector<token_id>& guesses) {
  proposed_.clear();
  if (known_ == 0)
    return;
  most = std::min(most, window_.size());
  const auto known = continuation().tokens;
  for (const auto t : known.first(std::min(most, known.size())))
    proposed_.emplace_back(t);
  while (proposed_.size() < most)
    proposed_.push_back(window_[proposed_.size()]);
  for (const auto& p : proposed_)
    guesses.push_back(p.tokens().back());
}

ngram_pool::continuation lookahead_drafter::continuation() const {
  const auto last = text_.tokens();
  if (last.empty())
    return {};
  return pool_.find(last.size() > 1 ? std::optional(last[last.size() - 2]) : std::nullopt, last.back());
}

std::size_t lookahead_drafter::grade() const {
  const auto known = continuation();
  return known.tokens.empty() ? 0 : known.of_pair ? 2 : 1;
}

std::optional<token_id> lookahead_drafter::first() const {
  const auto known = continuation().tokens;
  return known.empty() ? std::nullopt : std::optional(known.front());
}

void lookahead_drafter::observe(std::span<const token_id> choices) {
  std::size_t accepted = 0;
  bool right = true;
  for (std::size_t i = 0; i < choices.size() && i <= proposed_.size(); ++i) {
    auto corrected = i == 0 ? trail() : proposed_[i - 1];
    corrected.push(choices[i]);
    if (i > 0 && keeps_ngrams_)
      pool_.add(corrected.tokens());
    if (i < window_.size())
      window_[i] = corrected;
    else
      window_.push_back(corrected);
    right = right && i < proposed_.size() && i + 1 < choices.size() && proposed_[i].tokens().back() == choices[i];
    accepted += right;
  }
  proposed_.clear();
  if (choices.empty())
    return;
  advance(accepted + 1);
  advanced_ = accepted + 1;
}

} // namespace troupe
