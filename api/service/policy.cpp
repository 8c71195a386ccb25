#include "api/service/policy.hpp"

#include "runtime/model/default_sampling.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/text/banned_texts.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace troupe {

namespace {

/// A decimal number is an id.
std::optional<token_id> id_in(const std::string& text) {
  token_id id = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), id);
  return wrong == std::errc() && end == text.data() + text.size() ? std::optional(id) : std::nullopt;
}

/// Whether it is meant as an id, also where no token can have it.
bool is_number(std::string_view text) {
  if (text.starts_with('-'))
    text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

/// Whether a client's bias works against one of the policy.
bool lifts(float client, float policy) { return policy < 0 ? client > 0 : client < 0; }
/// That of both which goes farther in the policy's direction.
float stronger(float client, float policy) { return policy < 0 ? std::min(client, policy) : std::max(client, policy); }

/// The policy's biases, and the client's as far as they do not work against them.
void add_biases(const policy_rules& rules, const served_model& model, sampling_params& to) {
  std::map<token_id, float> of_ids;
  std::map<token_id, float> last; // of texts: the last token's
  std::vector<sequence_bias> of_texts;
  for (const auto& [what, bias] : *rules.logit_bias) {
    if (const auto id = id_in(what)) {
      if (*id < model.vocab_size)
        of_ids[*id] = bias;
      continue;
    }
    if (!model.encode)
      continue; // no text is made
    auto tokens = model.encode(what, false);
    if (tokens.empty())
      continue;
    if (tokens.size() == 1) {
      of_ids[tokens.front()] = bias;
    } else {
      last[tokens.back()] = bias;
      of_texts.push_back({std::move(tokens), bias});
    }
  }
  const auto works_against = [&](token_id id, float bias) {
    const auto one = of_ids.find(id), text = last.find(id);
    return (one != of_ids.end() && lifts(bias, one->second)) || (text != last.end() && lifts(bias, text->second));
  };
  std::map<token_id, float> all = of_ids;
  for (const auto& [id, bias] : to.logit_bias)
    if (!works_against(id, bias)) {
      const auto own = of_ids.find(id);
      all[id] = own == of_ids.end() ? bias : stronger(bias, own->second);
    }
  for (const auto& one : to.sequence_biases)
    if (!works_against(one.tokens.back(), one.bias))
      of_texts.push_back(one);
  to.logit_bias = logit_bias_map(std::vector<logit_bias_map::entry>(all.begin(), all.end()));
  to.sequence_biases = sequence_bias_list(std::move(of_texts), "logit_bias");
}

void bound_temperature(float most, const served_model& model, sampling_params& to) {
  if (const auto together = to.group(); together && !together->drawn)
    return;
  auto& temperature = to.temperature;
  for (const auto users : {sampling_convention::openai, sampling_convention::local})
    if (temperature > most && temperature == default_sampling(model.defaults, users).temperature)
      temperature = most; // nobody asked for it
  if (temperature > most)
    refuse_field("temperature",
                 "may be at most " + shortest_digits(most) + " on this server, not " + shortest_digits(temperature),
                 errc::unsupported);
  if (temperature + to.dynatemp_range > most && to.dynatemp_range > 0)
    refuse_field("dynatemp_range",
                 "and `temperature` may together be at most " + shortest_digits(most) + " on this server",
                 errc::unsupported);
}

void ban(const std::vector<std::string>& texts, const served_model& model, generation& to) {
  if (!model.decode)
    throw failure(errc::unsupported, "this server's policy bans texts, which needs a tokenizer; this model has none",
                  "model");
  const auto* how = constraints();
  if (!how)
    throw failure(errc::unsupported, "this server's policy bans texts, which this build of Troupe cannot", "model");
  to.sampling.techniques.set(how->without(texts, to.sampling.techniques.constraint()));
}

} // namespace

bool server_policy::is_empty() const {
  const auto says_nothing = [](const policy_rules& r) {
    return !r.banned && !r.logit_bias && !r.max_temperature && !r.max_tokens && !r.min_priority && !r.max_requests &&
      !r.tokens_per_minute;
  };
  return says_nothing(of_all) && std::ranges::all_of(of_key, [&](const auto& one) { return says_nothing(one.second); });
}

policy_rules server_policy::of(const std::string& key) const {
  auto result = of_all;
  const auto own = of_key.find(key);
  if (own == of_key.end())
    return result;
  const auto take = [](auto& to, const auto& from) {
    if (from)
      to = from;
  };
  take(result.banned, own->second.banned);
  take(result.logit_bias, own->second.logit_bias);
  take(result.max_temperature, own->second.max_temperature);
  take(result.max_tokens, own->second.max_tokens);
  take(result.min_priority, own->second.min_priority);
  take(result.max_requests, own->second.max_requests);
  take(result.tokens_per_minute, own->second.tokens_per_minute);
  return result;
}

banned_by_policy::banned_by_policy(const server_policy& policy) {
  const auto made = [](const policy_rules& rules) -> std::shared_ptr<const banned_texts> {
    if (!rules.banned || rules.banned->empty())
      return nullptr;
    return std::make_shared<const banned_texts>(*rules.banned);
  };
  of_all_ = made(policy.of_all);
  for (const auto& [key, rules] : policy.of_key)
    if (rules.banned)
      of_key_.emplace(key, made(rules));
}

std::shared_ptr<const banned_texts> banned_by_policy::of(const std::string& key) const {
  const auto own = of_key_.find(key);
  return own == of_key_.end() ? of_all_ : own->second;
}

void check_rules(const policy_rules& rules) {
  if (rules.banned) {
    std::size_t bytes = 0;
    for (const auto& text : *rules.banned) {
      bytes += text.size();
      if (text.empty() || !is_utf8(text))
        refuse_field("banned", "must have texts that are not empty");
    }
    if (rules.banned->size() > banned_texts::most_texts || bytes > banned_texts::most_bytes)
      refuse_field("banned",
                   "may have at most " + std::to_string(banned_texts::most_texts) + " texts of " +
                     std::to_string(banned_texts::most_bytes) + " bytes together");
  }
  if (rules.logit_bias) {
    if (rules.logit_bias->size() > sampling_fields::most_biases)
      refuse_field("logit_bias", "may have at most " + std::to_string(sampling_fields::most_biases) + " entries");
    for (const auto& [what, bias] : *rules.logit_bias) {
      const auto range = sampling_fields::bias;
      if (what.empty())
        refuse_field("logit_bias", "must not have an empty text");
      if (is_number(what) && id_in(what).value_or(-1) < 0)
        refuse_field("logit_bias", "must name tokens by ids from 0, or by texts, and " + what + " is no id");
      if (!(bias >= range.least && bias <= range.most))
        refuse_field("logit_bias",
                     "must be from " + shortest_digits(static_cast<float>(range.least)) + " to " +
                       shortest_digits(static_cast<float>(range.most)));
    }
  }
  if (rules.max_temperature && !(*rules.max_temperature >= 0 && *rules.max_temperature <= 2))
    refuse_field("max_temperature", "must be from 0 to 2");
  if (rules.max_tokens && *rules.max_tokens < 1)
    refuse_field("max_tokens", "must be at least 1");
  if (rules.min_priority && std::abs(*rules.min_priority) > 1'000'000)
    refuse_field("min_priority", "must be from -1000000 to 1000000");
}

// Clients count a lower number as more urgent, the engine a higher one.
void bound_priority(const policy_rules& rules, generation& to) {
  to.preference = to.priority;
  to.priority = std::min(to.priority, -rules.min_priority.value_or(0));
}

void check_policy(const server_policy& policy, const served_model& model) {
  constexpr auto most = sampling_fields::most_sequence_tokens;
  const auto check = [&](const policy_rules& rules, const std::string& prefix) {
    if (!rules.logit_bias || !model.encode)
      return;
    for (const auto& [what, bias] : *rules.logit_bias)
      if (!id_in(what))
        if (const auto tokens = model.encode(what, false).size(); tokens > most)
          throw failure(errc::bad_request,
                        "the policy's `" + prefix + "logit_bias` has a text of " + std::to_string(tokens) +
                          " tokens, which may have at most " + std::to_string(most) + ": \"" + what.substr(0, 40) +
                          "...\"");
  };
  check(policy.of_all, "");
  for (const auto& [key, rules] : policy.of_key)
    check(rules, "key." + key + '.');
}

void apply_policy(const policy_rules& rules, const served_model& model, generation& to) {
  auto& sampling = to.sampling;
  if (to.embed != pooling::none || sampling.scores_only())
    return; // nothing is said
  if (rules.max_temperature)
    bound_temperature(*rules.max_temperature, model, sampling);
  if (rules.max_tokens) {
    sampling.max_tokens = std::min(sampling.max_tokens, *rules.max_tokens);
    sampling.min_tokens = std::min(sampling.min_tokens, sampling.max_tokens);
  }
  if (rules.logit_bias && !rules.logit_bias->empty()) {
    add_biases(rules, model, sampling);
  }
  if (rules.banned && !rules.banned->empty())
    ban(*rules.banned, model, to);
}

} // namespace troupe
