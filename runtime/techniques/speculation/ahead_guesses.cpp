#include "runtime/techniques/speculation/ahead_guesses.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr double enough_tries = 8;                              // of guesses ahead, before they are judged
constexpr int alone_every = 32, retry_every = 128, retries = 4; // steps
constexpr double decay = 0.96;
constexpr double most_off = 0.5; // of a step: what takes longer than expected by more is no matter of the draft model

} // namespace

void ahead_guesses::answered(std::span<const token_id> guesses) {
  line_.insert(line_.end(), guesses.begin(), guesses.end());
  answered_ = true;
}

bool ahead_guesses::is_open() const {
  const auto both = std::min(line_.size(), came_.size());
  return std::equal(came_.begin(), came_.begin() + static_cast<std::ptrdiff_t>(both), line_.begin()) &&
    (!answered_ || came_.size() < line_.size());
}

std::vector<token_id> ahead_guesses::rest() const {
  if (!answered_ || !is_open())
    return {};
  return {line_.begin() + std::ssize(came_), line_.end()};
}

void ahead_account::mean::add(double sample) {
  weight = weight * decay + 1;
  value += (sample - value) / weight;
}

bool ahead_account::tries() {
  ++steps_;
  if (saved_.weight < enough_tries)
    return steps_ % 4 != 0;
  return pays() ? steps_ % alone_every != 0 : steps_ % retry_every < retries;
}

void ahead_account::finished(double ms, double expected_ms, bool beside) {
  if (!(expected_ms > 0))
    return;
  step_ms_ = expected_ms;
  (beside ? beside_ : alone_).add(std::clamp(ms / expected_ms - 1, -most_off, most_off));
}

void ahead_account::saved(double ms) { saved_.add(ms); }

bool ahead_account::pays() const {
  const auto slower = beside_.weight > 0 && alone_.weight > 0 ? std::max(beside_.value - alone_.value, 0.0) : 0.0;
  return saved_.value > slower * step_ms_;
}

} // namespace troupe
