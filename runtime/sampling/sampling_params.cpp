#include "runtime/sampling/sampling_params.hpp"

#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <sstream>
#include <string>

namespace troupe {

namespace {

template <class T>
[[noreturn]] void refuse(std::string_view field, std::string_view rule, T found) {
  classic<std::ostringstream> sentence;
  sentence << '`' << field << "` must be " << rule << ", not " << found << '.';
  throw failure(errc::bad_request, sentence.str(), std::string(field));
}

// Written so that a NaN is refused.
template <class T, class Value>
void expect_within(std::string_view field, Value value, T low, T high) {
  if (value >= static_cast<Value>(low) && value <= static_cast<Value>(high))
    return;
  classic<std::ostringstream> rule;
  rule << "between " << low << " and " << high;
  refuse(field, rule.str(), value);
}

/// The ids are already known to be non-negative and sorted.
void expect_known(std::string_view field, token_id largest, std::size_t vocab_size) {
  if (static_cast<std::size_t>(largest) >= vocab_size)
    refuse(field, "token ids from 0 to " + std::to_string(vocab_size - 1), largest);
}

} // namespace

bool sampling_params::extended() const {
  const bool filters = dynatemp_range > 0 || smoothing_factor > 0 || top_n_sigma > 0 || typical_p != 1 ||
    epsilon_cutoff > 0 || eta_cutoff > 0 || top_a > 0 || xtc_probability > 0 || mirostat != 0;
  const bool edits = repetition_penalty_range > 0 || no_repeat_ngram_size > 0 || dry_multiplier > 0 ||
    !sequence_biases.empty() || !allowed_token_ids.empty() || techniques.edits();
  return edits || filters || !samplers.is_default();
}

bool sampling_params::filtered() const {
  return (temperature != 1 && !greedy()) || top_k > 0 || top_p != 1 || min_p != 0 || dynatemp_range > 0 ||
    smoothing_factor > 0 || top_n_sigma > 0 || typical_p != 1 || epsilon_cutoff > 0 || eta_cutoff > 0 || top_a > 0 ||
    xtc_probability > 0 || mirostat != 0 || !samplers.is_default();
}

std::optional<group_kind> sampling_params::group() const {
  const auto* by = techniques.group();
  return by ? by->group() : std::nullopt;
}

int sampling_params::width() const {
  const auto together = group().value_or(group_kind{});
  return std::max({together.ranked ? 1 : n, best_of, together.width, 1});
}

bool sampling_params::shaped() const {
  return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0 || !logit_bias.empty() ||
    extended();
}

void sampling_params::settle(const given_fields& given) { techniques = techniques.settled(*this, given); }

void sampling_params::check_best_of() const {
  if (best_of != 0 && best_of < n)
    refuse("best_of", "at least `n` (" + std::to_string(n) + ")", best_of);
  if (rank != best_of_rank::cumulative && best_of <= n && !grouped())
    refuse_field("best_of_rank", "needs `best_of` to be above `n`");
}

best_of_rank parse_best_of_rank(std::string_view text) {
  if (text == "cumulative")
    return best_of_rank::cumulative;
  if (text == "mean")
    return best_of_rank::mean;
  refuse_field("best_of_rank", "must be \"cumulative\" or \"mean\"");
}

void sampling_params::check_samplers() const {
  if (mirostat == 1)
    refuse("mirostat", "0 or 2", mirostat);
}

void sampling_params::check_techniques() const {
  for (const auto& use : techniques)
    use->check(*this);
}

void sampling_params::validate(std::size_t vocab_size) const {
  sampling_fields::for_each([&](const auto& field) {
    if (!scores_only() || field.name != "max_tokens")
      expect_within(field.name, this->*field.member, field.least, field.most);
  });
  if (scores_only() && (width() > 1 || grouped()))
    refuse("max_tokens", "at least 1 for several sequences (n, best_of or num_beams)", max_tokens);
  if (min_tokens > max_tokens)
    refuse("min_tokens", "between 0 and max_tokens (" + std::to_string(max_tokens) + ")", min_tokens);
  check_best_of();
  if (!logit_bias.empty())
    expect_known("logit_bias", (logit_bias.end() - 1)->first, vocab_size);
  check_samplers();
  check_techniques();
  for (const auto& entry : sequence_biases)
    expect_known("bad_words", *std::ranges::max_element(entry.tokens), vocab_size);
  if (!allowed_token_ids.empty())
    expect_known("allowed_token_ids", *(allowed_token_ids.end() - 1), vocab_size);
  if (!stop_token_ids.empty())
    expect_known("stop_token_ids", *(stop_token_ids.end() - 1), vocab_size);
}

} // namespace troupe
