#include "runtime/sampling_params.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <sstream>
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
template <class T>
void expect_within(std::string_view field, T value, T low, T high) {
  if (value >= low && value <= high)
    return;
  std::ostringstream rule;
  rule << "between " << low << " and " << high;
  refuse(field, rule.str(), value);
}

void expect_id(std::string_view field, token_id id, std::size_t vocab_size) {
  if (id < 0 || static_cast<std::size_t>(id) >= vocab_size)
    refuse(field, "made of token ids from 0 to " + std::to_string(vocab_size - 1), id);
}

void expect_distinct(std::string_view field, std::vector<std::pair<token_id, float>> ids) {
  std::ranges::sort(ids);
  const auto twice = std::ranges::adjacent_find(ids, {}, &std::pair<token_id, float>::first);
  if (twice != ids.end())
    throw failure(errc::bad_request, "`" + std::string(field) + "` names token " + std::to_string(twice->first) +
                                       " more than once.", std::string(field));
}

} // namespace

void sampling_params::validate(std::size_t vocab_size) const {
  expect_within("temperature", temperature, 0.f, 2.f);
  if (top_k < -1)
    refuse("top_k", "at least 1, or 0 or -1 for no limit", top_k);
  expect_within("top_p", top_p, 0.f, 1.f);
  expect_within("min_p", min_p, 0.f, 1.f);
  if (!(repetition_penalty > 0 && repetition_penalty <= 100))
    refuse("repetition_penalty", "above 0 and at most 100", repetition_penalty);
  expect_within("presence_penalty", presence_penalty, -2.f, 2.f);
  expect_within("frequency_penalty", frequency_penalty, -2.f, 2.f);
  for (const auto& [id, bias] : logit_bias) {
    expect_id("logit_bias", id, vocab_size);
    expect_within("logit_bias", bias, -100.f, 100.f);
  }
  expect_distinct("logit_bias", logit_bias);
  if (max_tokens < 1)
    refuse("max_tokens", "at least 1", max_tokens);
  if (min_tokens < 0 || min_tokens > max_tokens)
    refuse("min_tokens", "between 0 and max_tokens (" + std::to_string(max_tokens) + ")", min_tokens);
  for (const token_id id : stop_token_ids)
    expect_id("stop_token_ids", id, vocab_size);
  for (const auto& text : stop)
    if (text.empty())
      throw failure(errc::bad_request, "`stop` must not contain an empty string.", "stop");
  expect_within("n", n, 1, 128);
  expect_within("logprobs", logprobs, -1, 20);
}

} // namespace troupe
