// The fields of what passes between an engine and its clients, generation and event with all that is in them, listed
// once:
//
//   for_each_field(x, visit)   calls visit(name, field) for each, in the order in which they are declared
//
// Whatever treats them alike (printing, comparing, writing to a socket) is one function over this list. A field that is
// added to a struct and forgotten here does not compile. Pointers among them share immutable values: another process
// gets a copy. Lists that check what they hold (`list_field`) stand for what they are made of, and check it again.
#pragma once

#include "runtime/engine/generation.hpp"
#include "runtime/sampling/judging.hpp"

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

template <class T, class Of>
concept fields_of = std::same_as<std::remove_const_t<T>, Of>;

// -- requests ---------------------------------------------------------------------------------------------------------

template <fields_of<generation> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [prompt, sampling, priority, preference, skip_special_tokens, timeout, prediction, guide, shown_tokens, embed,
         second, adapter, steering, negative_prompt, client, begins_text, cache_salt, model, embeddings] = x;
  visit("prompt", prompt);
  visit("sampling", sampling);
  visit("priority", priority);
  visit("preference", preference);
  visit("skip_special_tokens", skip_special_tokens);
  visit("timeout", timeout);
  visit("prediction", prediction);
  visit("guide", guide);
  visit("shown_tokens", shown_tokens);
  visit("embed", embed);
  visit("second", second);
  visit("adapter", adapter);
  visit("steering", steering);
  visit("negative_prompt", negative_prompt);
  visit("client", client);
  visit("begins_text", begins_text);
  visit("cache_salt", cache_salt);
  visit("model", model);
  visit("embeddings", embeddings);
}

template <fields_of<sampling_params> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, dynatemp_range,
         dynatemp_exponent, smoothing_factor, smoothing_curve, top_n_sigma, typical_p, epsilon_cutoff, eta_cutoff,
         top_a, xtc_probability, xtc_threshold, mirostat, mirostat_tau, mirostat_eta, samplers,
         repetition_penalty_range, no_repeat_ngram_size, dry_multiplier, dry_base, dry_allowed_length, dry_range,
         dry_breakers, logit_bias, sequence_biases, allowed_token_ids, watermark, seed, max_tokens, min_tokens,
         ignore_eos, stop_token_ids, stop, thinking_budget, n, logprobs, prompt_logprobs, best_of, rank, num_beams,
         num_beam_groups, diversity_penalty, length_penalty, stopping, stochastic_beams, beam_sampling, search,
         guidance_scale, contrastive_beta, contrastive_alpha, dola, speculate] = x;
  visit("temperature", temperature);
  visit("top_k", top_k);
  visit("top_p", top_p);
  visit("min_p", min_p);
  visit("repetition_penalty", repetition_penalty);
  visit("presence_penalty", presence_penalty);
  visit("frequency_penalty", frequency_penalty);
  visit("dynatemp_range", dynatemp_range);
  visit("dynatemp_exponent", dynatemp_exponent);
  visit("smoothing_factor", smoothing_factor);
  visit("smoothing_curve", smoothing_curve);
  visit("top_n_sigma", top_n_sigma);
  visit("typical_p", typical_p);
  visit("epsilon_cutoff", epsilon_cutoff);
  visit("eta_cutoff", eta_cutoff);
  visit("top_a", top_a);
  visit("xtc_probability", xtc_probability);
  visit("xtc_threshold", xtc_threshold);
  visit("mirostat", mirostat);
  visit("mirostat_tau", mirostat_tau);
  visit("mirostat_eta", mirostat_eta);
  visit("samplers", samplers);
  visit("repetition_penalty_range", repetition_penalty_range);
  visit("no_repeat_ngram_size", no_repeat_ngram_size);
  visit("dry_multiplier", dry_multiplier);
  visit("dry_base", dry_base);
  visit("dry_allowed_length", dry_allowed_length);
  visit("dry_range", dry_range);
  visit("dry_breakers", dry_breakers);
  visit("logit_bias", logit_bias);
  visit("sequence_biases", sequence_biases);
  visit("allowed_token_ids", allowed_token_ids);
  visit("watermark", watermark);
  visit("seed", seed);
  visit("max_tokens", max_tokens);
  visit("min_tokens", min_tokens);
  visit("ignore_eos", ignore_eos);
  visit("stop_token_ids", stop_token_ids);
  visit("stop", stop);
  visit("thinking_budget", thinking_budget);
  visit("n", n);
  visit("logprobs", logprobs);
  visit("prompt_logprobs", prompt_logprobs);
  visit("best_of", best_of);
  visit("rank", rank);
  visit("num_beams", num_beams);
  visit("num_beam_groups", num_beam_groups);
  visit("diversity_penalty", diversity_penalty);
  visit("length_penalty", length_penalty);
  visit("stopping", stopping);
  visit("stochastic_beams", stochastic_beams);
  visit("beam_sampling", beam_sampling);
  visit("search", search);
  visit("guidance_scale", guidance_scale);
  visit("contrastive_beta", contrastive_beta);
  visit("contrastive_alpha", contrastive_alpha);
  visit("dola", dola);
  visit("speculate", speculate);
}

template <fields_of<search_options> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [simulations, branching, parallel, exploration, length_penalty, value, judged] = x;
  visit("simulations", simulations);
  visit("branching", branching);
  visit("parallel", parallel);
  visit("exploration", exploration);
  visit("length_penalty", length_penalty);
  visit("value", value);
  visit("judged", judged);
}

template <fields_of<judged_prompt> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [text, messages, continues_last] = x;
  visit("text", text);
  visit("messages", messages);
  visit("continues_last", continues_last);
}

template <fields_of<prompt_embeddings> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [rows, width, values] = x;
  visit("rows", rows);
  visit("width", width);
  visit("values", values);
}

template <fields_of<sequence_bias> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [tokens, bias] = x;
  visit("tokens", tokens);
  visit("bias", bias);
}

template <fields_of<steering_choice> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [name, strength, first_layer, last_layer] = x;
  visit("name", name);
  visit("strength", strength);
  visit("first_layer", first_layer);
  visit("last_layer", last_layer);
}

namespace guides {

template <fields_of<thinking_marks> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [begin, end, close, is_open] = x;
  visit("begin", begin);
  visit("end", end);
  visit("close", close);
  visit("is_open", is_open);
}

template <fields_of<guide_source> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [what, text, choices, any_order, compact, after, preface_begin, preface_end, closed, thinking, banned, field,
         parts] = x;
  visit("what", what);
  visit("text", text);
  visit("choices", choices);
  visit("any_order", any_order);
  visit("compact", compact);
  visit("after", after);
  visit("preface_begin", preface_begin);
  visit("preface_end", preface_end);
  visit("closed", closed);
  visit("thinking", thinking);
  visit("banned", banned);
  visit("field", field);
  visit("parts", parts);
}

} // namespace guides

namespace watermarks {

// Its key is a secret: what prints fields leaves it out.
template <fields_of<options> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [what, context, width, gamma, delta, key] = x;
  visit("what", what);
  visit("context", context);
  visit("width", width);
  visit("gamma", gamma);
  visit("delta", delta);
  visit("key", key);
}

} // namespace watermarks

// -- events -----------------------------------------------------------------------------------------------------------

template <fields_of<token_event> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [index, position, text, token_ids, logprobs, finish, stop, prompt] = x;
  visit("index", index);
  visit("position", position);
  visit("text", text);
  visit("token_ids", token_ids);
  visit("logprobs", logprobs);
  visit("finish", finish);
  visit("stop", stop);
  visit("prompt", prompt);
}

template <fields_of<sampled_token> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [id, logprob, top, finish, mirostat_mu, withheld] = x;
  visit("id", id);
  visit("logprob", logprob);
  visit("top", top);
  visit("finish", finish);
  visit("mirostat_mu", mirostat_mu);
  visit("withheld", withheld);
}

template <fields_of<token_logprob> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [id, logprob] = x;
  visit("id", id);
  visit("logprob", logprob);
}

template <fields_of<done_event> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [choices, prompt_tokens, completion_tokens, cached_tokens, queue_ms, prefill_ms, decode_ms, accepted_guesses,
         rejected_guesses, accepted_predicted, rejected_predicted, withheld_tokens, embedding] = x;
  visit("choices", choices);
  visit("prompt_tokens", prompt_tokens);
  visit("completion_tokens", completion_tokens);
  visit("cached_tokens", cached_tokens);
  visit("queue_ms", queue_ms);
  visit("prefill_ms", prefill_ms);
  visit("decode_ms", decode_ms);
  visit("accepted_guesses", accepted_guesses);
  visit("rejected_guesses", rejected_guesses);
  visit("accepted_predicted", accepted_predicted);
  visit("rejected_predicted", rejected_predicted);
  visit("withheld_tokens", withheld_tokens);
  visit("embedding", embedding);
}

template <fields_of<choice_summary> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [index, reason, tokens, cumulative_logprob, score] = x;
  visit("index", index);
  visit("reason", reason);
  visit("tokens", tokens);
  visit("cumulative_logprob", cumulative_logprob);
  visit("score", score);
}

template <fields_of<error> T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto& [code, message, param] = x;
  visit("code", code);
  visit("message", message);
  visit("param", param);
}

// -- lists that check what they hold ----------------------------------------------------------------------------------

inline std::vector<token_id> items_of(const stop_id_set& x) { return {x.begin(), x.end()}; }
inline void make(stop_id_set& x, std::vector<token_id> items) { x = stop_id_set(std::move(items)); }

inline std::vector<logit_bias_map::entry> items_of(const logit_bias_map& x) { return {x.begin(), x.end()}; }
inline void make(logit_bias_map& x, std::vector<logit_bias_map::entry> items) { x = logit_bias_map(std::move(items)); }

inline std::vector<sequence_bias> items_of(const sequence_bias_list& x) { return {x.begin(), x.end()}; }
inline void make(sequence_bias_list& x, std::vector<sequence_bias> items) { x = sequence_bias_list(std::move(items)); }

inline std::vector<token_id> items_of(const token_set& x) { return {x.begin(), x.end()}; }
inline void make(token_set& x, std::vector<token_id> items) {
  const auto all = items.size();
  x = token_set(std::move(items), "token_ids", all);
}

inline std::vector<std::string> items_of(const stop_strings& x) {
  std::vector<std::string> items;
  for (std::size_t i = 0; i < x.size(); ++i)
    items.push_back(x[i]);
  return items;
}
inline void make(stop_strings& x, std::vector<std::string> items) { x = stop_strings(std::move(items)); }

inline std::vector<std::string> items_of(const sampler_order& x) {
  std::vector<std::string> items;
  for (const auto step : x.steps())
    items.emplace_back(sampler_names[static_cast<std::size_t>(step)]);
  return items;
}
inline void make(sampler_order& x, const std::vector<std::string>& items) { x = sampler_order(items); }

/// A word, or layers by number.
inline std::vector<std::string> items_of(const dola_layers& x) {
  if (!x.word().empty())
    return {std::string(x.word())};
  std::vector<std::string> items;
  for (const auto layer : x)
    items.push_back(std::to_string(layer));
  return items;
}
inline void make(dola_layers& x, const std::vector<std::string>& items) {
  if (items.empty()) {
    x = {};
  } else if (items.front() == "low" || items.front() == "high") {
    x = dola_layers(std::string_view(items.front()));
  } else {
    std::vector<int> layers;
    for (const auto& each : items) {
      layers.push_back(-1); // which is refused, as all that is no number
      std::from_chars(each.data(), each.data() + each.size(), layers.back());
    }
    x = dola_layers(std::move(layers));
  }
}

template <class T>
concept list_field = requires(const T& from, T& to) {
  make(to, items_of(from));
};

template <class T>
concept has_fields = requires(T& x) {
  for_each_field(x, [](const char*, auto&) {});
};

} // namespace troupe
