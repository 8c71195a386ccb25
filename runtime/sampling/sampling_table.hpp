// The table of numeric sampling parameters: name, member and range of each, and which interfaces may set it.
// Validation, generation_config.json, HTTP and WebSocket bodies and the command line are all generated from it, so a
// new parameter is a member of sampling_params, a row here and the code that applies it. Parameters that are not plain
// numbers (seed, lists, names) or whose spelling depends on the API (max_tokens, logprobs) are read by each interface
// itself.
#pragma once

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/sampling/sampling_ranges.hpp"

#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace troupe {

/// The interfaces that may set a parameter under its name in the table.
struct sampling_sources {
  bool checkpoint = false;   // generation_config.json
  bool request = false;      // HTTP and WebSocket bodies
  bool command_line = false; // as --name-with-dashes
};

template <class T>
struct sampling_field {
  using bound = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

  std::string_view name;
  T sampling_params::*member;
  bound least, most;
  sampling_sources sources;
  const char* help = ""; // for the command line
};

namespace sampling_fields {

inline constexpr sampling_sources anywhere{.checkpoint = true, .request = true, .command_line = true};
inline constexpr sampling_sources by_client{.request = true, .command_line = true};

/// In the order in which parameters are validated.
inline constexpr std::tuple table{
  sampling_field<float>{"temperature", &sampling_params::temperature, 0, 2, anywhere,
                        "0: always the likeliest token; 1: the model's own distribution; above 1: more varied"},
  sampling_field<int>{"top_k", &sampling_params::top_k, -1, most_int, anywhere,
                      "Keep the k likeliest tokens; 0 or -1: all"},
  sampling_field<float>{"top_p", &sampling_params::top_p, 0, 1, anywhere,
                        "Keep the likeliest tokens that together have this probability; 1: all"},
  sampling_field<float>{"min_p", &sampling_params::min_p, 0, 1, anywhere,
                        "Drop tokens less likely than this fraction of the likeliest; 0: none"},
  sampling_field<float>{
    "dynatemp_range", &sampling_params::dynatemp_range, 0, 2, by_client,
    "Vary the temperature by up to this much: lower where the model is sure, higher where not; 0: off"},
  sampling_field<float>{"dynatemp_exponent", &sampling_params::dynatemp_exponent, 0, 10, by_client,
                        "With --dynatemp-range: the power of the entropy that the temperature follows"},
  sampling_field<float>{"smoothing_factor", &sampling_params::smoothing_factor, 0, 100, by_client,
                        "Strength of quadratic smoothing, which reshapes the scores around the best; 0: off"},
  sampling_field<float>{"smoothing_curve", &sampling_params::smoothing_curve, 1, 3, by_client,
                        "With --smoothing-factor: above 1, penalise unlikely tokens more"},
  sampling_field<float>{"top_n_sigma", &sampling_params::top_n_sigma, -1, 100, by_client,
                        "Drop tokens whose score is this many standard deviations below the best; 0: none"},
  sampling_field<float>{"typical_p", &sampling_params::typical_p, 0, 1, anywhere,
                        "Keep the most typical tokens that together have this probability; 1: all"},
  sampling_field<float>{"epsilon_cutoff", &sampling_params::epsilon_cutoff, 0, 1, anywhere,
                        "Drop tokens less likely than this; 0: none"},
  sampling_field<float>{"eta_cutoff", &sampling_params::eta_cutoff, 0, 1, anywhere,
                        "Like --epsilon-cutoff, but more lenient where the model is unsure; 0: off"},
  sampling_field<float>{"top_a", &sampling_params::top_a, 0, 1, by_client,
                        "Drop tokens less likely than this times the square of the best probability; 0: none"},
  sampling_field<float>{"xtc_probability", &sampling_params::xtc_probability, 0, 1, by_client,
                        "Chance of removing all but the least likely token above --xtc-threshold; 0: off"},
  sampling_field<float>{"xtc_threshold", &sampling_params::xtc_threshold, 0, 1, by_client,
                        "With --xtc-probability: the probability from which a token counts as likely"},
  sampling_field<int>{"mirostat", &sampling_params::mirostat, 0, 2, by_client,
                      "2: hold the surprise at --mirostat-tau, instead of filtering; 0: off"},
  sampling_field<float>{"mirostat_tau", &sampling_params::mirostat_tau, 0, 100, by_client,
                        "With --mirostat: the target surprise, in bits"},
  sampling_field<float>{"mirostat_eta", &sampling_params::mirostat_eta, 0, 1, by_client,
                        "With --mirostat: the learning rate"},
  sampling_field<int>{"repetition_penalty_range", &sampling_params::repetition_penalty_range, 0, most_int, by_client,
                      "With --repetition-penalty: how many tokens to look back; 0: all"},
  sampling_field<int>{"no_repeat_ngram_size", &sampling_params::no_repeat_ngram_size, 0, most_ngram, anywhere,
                      "Never repeat a sequence of this many tokens; 0: off"},
  sampling_field<float>{"dry_multiplier", &sampling_params::dry_multiplier, 0, 100, by_client,
                        "DRY (don't repeat yourself): penalty for continuing a repetition; 0: off"},
  sampling_field<float>{"dry_base", &sampling_params::dry_base, 1, 10, by_client,
                        "With --dry-multiplier: factor by which the penalty grows with each repeated token"},
  sampling_field<int>{"dry_allowed_length", &sampling_params::dry_allowed_length, 0, most_dry_range, by_client,
                      "With --dry-multiplier: repetitions shorter than this many tokens are free"},
  sampling_field<int>{"dry_range", &sampling_params::dry_range, 0, most_dry_range, by_client,
                      "With --dry-multiplier: how many tokens to look back; 0: as many as possible"},
  sampling_field<float>{"repetition_penalty", &sampling_params::repetition_penalty, 0.01, 100, anywhere,
                        "Penalise tokens that occurred before, above 1; 1: off"},
  sampling_field<float>{"presence_penalty", &sampling_params::presence_penalty, -2, 2, by_client,
                        "Lower the score of tokens already generated by this much; 0: off"},
  sampling_field<float>{"frequency_penalty", &sampling_params::frequency_penalty, -2, 2, by_client,
                        "Lower the score of a token by this much for each time it was generated; 0: off"},
  sampling_field<int>{
    "max_tokens", &sampling_params::max_tokens, 1, most_int, {.command_line = true}, "Stop after this many tokens"},
  sampling_field<int>{"min_tokens", &sampling_params::min_tokens, 0, most_int, by_client,
                      "Do not let the model end its answer before this many tokens"},
  sampling_field<int>{"thinking_token_budget", &sampling_params::thinking_budget, -1, most_int, {.request = true}},
  sampling_field<int>{"n", &sampling_params::n, 1, most_sequences, {.request = true}},
  sampling_field<int>{"best_of", &sampling_params::best_of, 0, most_sequences, by_client,
                      "Generate this many answers and keep the best; 0: as many as are printed"},
  sampling_field<int>{"logprobs", &sampling_params::logprobs, -1, most_logprobs, {}},
  sampling_field<int>{"prompt_logprobs", &sampling_params::prompt_logprobs, -1, most_logprobs, {}},
};

/// Calls `visit` with each sampling_field of the table.
template <class Visit>
constexpr void for_each(Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, table);
}

} // namespace sampling_fields

} // namespace troupe
