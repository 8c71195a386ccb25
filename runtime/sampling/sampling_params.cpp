#include "runtime/sampling/sampling_params.hpp"

#include "runtime/sampling/beam_options.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/error.hpp"

#include <sstream>
#include <string>
#include <string_view>

namespace troupe {

namespace {

template <class T>
[[noreturn]] void refuse(std::string_view field, std::string_view rule, T found) {
  std::ostringstream sentence;
  sentence << '`' << field << "` must be " << rule << ", not " << found << '.';
  throw failure(errc::bad_request, sentence.str(), std::string(field));
}

// Written so that a NaN is refused.
template <class T, class Value>
void expect_within(std::string_view field, Value value, T low, T high) {
  if (value >= static_cast<Value>(low) && value <= static_cast<Value>(high))
    return;
  std::ostringstream rule;
  rule << "between " << low << " and " << high;
  refuse(field, rule.str(), value);
}

/// The ids are already known to be non-negative and sorted.
void expect_known(std::string_view field, token_id largest, std::size_t vocab_size) {
  if (static_cast<std::size_t>(largest) >= vocab_size)
    refuse(field, "made of token ids from 0 to " + std::to_string(vocab_size - 1), largest);
}

} // namespace

void sampling_params::validate(std::size_t vocab_size) const {
  sampling_fields::for_each([&](const auto& field) {
    if (!scores_only() || field.name != "max_tokens")
      expect_within(field.name, this->*field.member, field.least, field.most);
  });
  if (scores_only() && (width() > 1 || grouped()))
    refuse("max_tokens", "at least 1 for several sequences (n, best_of or num_beams)", max_tokens);
  if (min_tokens > max_tokens)
    refuse("min_tokens", "between 0 and max_tokens (" + std::to_string(max_tokens) + ")", min_tokens);
  check_beams(*this);
  if (!logit_bias.empty())
    expect_known("logit_bias", (logit_bias.end() - 1)->first, vocab_size);
  if (!stop_token_ids.empty())
    expect_known("stop_token_ids", *(stop_token_ids.end() - 1), vocab_size);
}

} // namespace troupe
