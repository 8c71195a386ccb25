#include "api/openai/answer_timings.hpp"

#include <algorithm>

namespace troupe {

namespace {

double ratio(double of, double to) { return to > 0 ? of / to : 0; }

} // namespace

std::string json_of(const wait_parts& spent) {
  json_object result;
  for (std::size_t i = 0; i < wait_causes; ++i)
    if (spent.ms[i] != 0)
      result.number(name_of(static_cast<wait_cause>(i)), spent.ms[i]);
  return result.str();
}

void answer_timings::add(const done_event& done) {
  prompt_tokens_ += done.prompt_tokens;
  cached_tokens_ += done.cached_tokens;
  guesses_ += done.accepted_guesses + done.rejected_guesses;
  accepted_ += done.accepted_guesses;
  if (done.total_ms <= total_ms_)
    return;
  queue_ms_ = done.queue_ms;
  prefill_ms_ = done.prefill_ms;
  decode_ms_ = done.decode_ms;
  total_ms_ = done.total_ms;
  spent_ = done.spent;
}

json_object answer_timings::json(std::uint64_t said) const {
  const auto computed = prompt_tokens_ - std::min(cached_tokens_, prompt_tokens_);
  const auto read = static_cast<double>(computed), written = static_cast<double>(said);
  json_object result;
  result.number("cache_n", cached_tokens_)
    .number("prompt_n", computed)
    .number("prompt_ms", prefill_ms_)
    .number("prompt_per_token_ms", ratio(prefill_ms_, read))
    .number("prompt_per_second", ratio(1000 * read, prefill_ms_))
    .number("predicted_n", said)
    .number("predicted_ms", decode_ms_)
    .number("predicted_per_token_ms", ratio(decode_ms_, written))
    .number("predicted_per_second", ratio(1000 * written, decode_ms_));
  if (guesses_ > 0)
    result.number("draft_n", guesses_).number("draft_n_accepted", accepted_);
  result.number("queue_ms", queue_ms_).number("total_ms", std::max(0.0, total_ms_)).raw("spent_ms", json_of(spent_));
  return result;
}

} // namespace troupe
