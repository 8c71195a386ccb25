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
                        "0: always the likeliest token; 1: as the model has it"},
  sampling_field<int>{"top_k", &sampling_params::top_k, -1, most_int, anywhere,
                      "Only among the k likeliest; 0 or -1: all"},
  sampling_field<float>{"top_p", &sampling_params::top_p, 0, 1, anywhere,
                        "Only among the likeliest that make up this probability; 1: all"},
  sampling_field<float>{"min_p", &sampling_params::min_p, 0, 1, anywhere,
                        "Only what is at least this fraction as likely as the likeliest"},
  sampling_field<float>{"dynatemp_range", &sampling_params::dynatemp_range, 0, 2, by_client,
                        "Temperature varies so far either way: low where the model is sure; 0: off"},
  sampling_field<float>{"dynatemp_exponent", &sampling_params::dynatemp_exponent, 0, 10, by_client,
                        "How the temperature of --dynatemp-range grows with entropy"},
  sampling_field<float>{"smoothing_factor", &sampling_params::smoothing_factor, 0, 100, by_client,
                        "Quadratic smoothing; 0: off"},
  sampling_field<float>{"smoothing_curve", &sampling_params::smoothing_curve, 1, 3, by_client,
                        "Of --smoothing-factor: above 1 the unlikely lose more"},
  sampling_field<float>{"top_n_sigma", &sampling_params::top_n_sigma, -1, 100, by_client,
                        "Only scores within so many standard deviations of the best; 0: all"},
  sampling_field<float>{"typical_p", &sampling_params::typical_p, 0, 1, anywhere,
                        "Only the most typical tokens that make up this probability; 1: all"},
  sampling_field<float>{"epsilon_cutoff", &sampling_params::epsilon_cutoff, 0, 1, anywhere,
                        "Only what is at least so likely; 0: all"},
  sampling_field<float>{"eta_cutoff", &sampling_params::eta_cutoff, 0, 1, anywhere,
                        "The same, less strict where the model is unsure; 0: all"},
  sampling_field<float>{"top_a", &sampling_params::top_a, 0, 1, by_client,
                        "Only what is at least this times the square of the likeliest's probability; 0: all"},
  sampling_field<float>{"xtc_probability", &sampling_params::xtc_probability, 0, 1, by_client,
                        "How often all likely tokens but the least are excluded"},
  sampling_field<float>{"xtc_threshold", &sampling_params::xtc_threshold, 0, 1, by_client,
                        "Of --xtc-probability: what is likely"},
  sampling_field<int>{"mirostat", &sampling_params::mirostat, 0, 2, by_client,
                      "2: keep the surprise at --mirostat-tau, in place of filters; 0: off"},
  sampling_field<float>{"mirostat_tau", &sampling_params::mirostat_tau, 0, 100, by_client,
                        "The surprise that mirostat aims at, in bits"},
  sampling_field<float>{"mirostat_eta", &sampling_params::mirostat_eta, 0, 1, by_client, "How fast mirostat learns"},
  sampling_field<int>{"repetition_penalty_range", &sampling_params::repetition_penalty_range, 0, most_int, by_client,
                      "Of --repetition-penalty: how many tokens back; 0: all"},
  sampling_field<int>{"no_repeat_ngram_size", &sampling_params::no_repeat_ngram_size, 0, most_ngram, anywhere,
                      "No sequence of so many tokens twice; 0: off"},
  sampling_field<float>{"dry_multiplier", &sampling_params::dry_multiplier, 0, 100, by_client,
                        "Do not repeat yourself: what continuing a repetition costs; 0: off"},
  sampling_field<float>{"dry_base", &sampling_params::dry_base, 1, 10, by_client,
                        "Of --dry-multiplier: grows by this with each repeated token"},
  sampling_field<int>{"dry_allowed_length", &sampling_params::dry_allowed_length, 0, most_dry_range, by_client,
                      "Of --dry-multiplier: tokens that may be repeated at its least cost"},
  sampling_field<int>{"dry_range", &sampling_params::dry_range, 0, most_dry_range, by_client,
                      "Of --dry-multiplier: how many tokens back; 0: as many as possible"},
  sampling_field<float>{"repetition_penalty", &sampling_params::repetition_penalty, 0.01, 100, anywhere,
                        "Divides the scores of tokens that were there before; 1: off"},
  sampling_field<float>{"presence_penalty", &sampling_params::presence_penalty, -2, 2, by_client,
                        "Taken off the score of tokens already generated"},
  sampling_field<float>{"frequency_penalty", &sampling_params::frequency_penalty, -2, 2, by_client,
                        "Taken off the score of a token for each time that it was generated"},
  sampling_field<int>{
    "max_tokens", &sampling_params::max_tokens, 1, most_int, {.command_line = true}, "Stop after this many tokens"},
  sampling_field<int>{"min_tokens", &sampling_params::min_tokens, 0, most_int, by_client,
                      "Do not let the model end before"},
  sampling_field<int>{"n", &sampling_params::n, 1, most_sequences, {.request = true}},
  sampling_field<int>{"best_of", &sampling_params::best_of, 0, most_sequences, by_client,
                      "Generate so many answers and keep the best; 0: as many as are printed"},
  sampling_field<int>{"num_beams", &sampling_params::num_beams, 0, most_sequences, by_client,
                      "Search for the likeliest answers with so many beams; 0: draw them"},
  sampling_field<int>{"num_beam_groups", &sampling_params::num_beam_groups, 1, most_sequences, by_client,
                      "Search in so many groups of beams that avoid each other's tokens"},
  sampling_field<float>{"diversity_penalty", &sampling_params::diversity_penalty, 0, 100, by_client,
                        "Taken off a token's score for each earlier group's beam that chose it"},
  sampling_field<float>{"length_penalty", &sampling_params::length_penalty, -10, 10, by_client,
                        "A beam's log-probability is divided by its length to this power; above 0 favours long ones"},
  sampling_field<float>{"guidance_scale", &sampling_params::guidance_scale, 0, 100, by_client,
                        "Classifier-free guidance: how far away from the negative prompt; 1: off"},
  sampling_field<float>{"contrastive_beta", &sampling_params::contrastive_beta, 0, 100, by_client,
                        "Contrastive decoding: how far away from what --amateur would say; 0: off"},
  sampling_field<float>{"contrastive_alpha", &sampling_params::contrastive_alpha, 0, 1, by_client,
                        "Of --contrastive-beta: only what is at least this fraction as likely as the likeliest"},
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
