// The sampling parameters of a request. Filled by the API or the command line, validated when the request is admitted,
// then shared read-only. Copies are cheap: they share the lists.
#pragma once

#include "runtime/sampling/processors/sampler_order.hpp"
#include "runtime/sampling/processors/token_sequences.hpp"
#include "runtime/sampling/sampling_lists.hpp"
#include "runtime/sampling/stop_strings.hpp"
#include "runtime/support/types.hpp"
#include "runtime/techniques/technique_uses.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace troupe {

/// What best_of candidates are ranked by: the sum or the mean of their tokens' log-probabilities.
enum class best_of_rank : std::uint8_t { cumulative, mean };

/// "cumulative" or "mean". Throws failure(bad_request).
best_of_rank parse_best_of_rank(std::string_view text);

struct judged_prompt; // judging.hpp

/// Processors apply in the order of transformers' generate: logit_bias, repetition_penalty, min_tokens,
/// presence_penalty and frequency_penalty, DRY, allowed_token_ids, repeated n-grams, techniques; then the contrast
/// with other rows; then, as `samplers` has it, temperature, top_k, top_p, min_p and the others. The
/// initial values are the defaults of every interface; names and ranges are in sampling_table.hpp, definitions in
/// processors/.
struct sampling_params {
  float temperature = 1;        // below 1e-5: greedy, and the filters are not used
  int top_k = 0;                // 0 or -1: off
  float top_p = 1;              // 1: off
  float min_p = 0;              // 0: off
  float repetition_penalty = 1; // over prompt and generated tokens
  float presence_penalty = 0;   // over generated tokens
  float frequency_penalty = 0;  // over generated tokens

  // Filters and shapes of the distribution; 0 where nothing else is said: off.
  float dynatemp_range = 0, dynatemp_exponent = 1; // temperature by entropy, so far either way
  float smoothing_factor = 0, smoothing_curve = 1; // quadratic
  float top_n_sigma = 0;                           // 0 or below: off
  float typical_p = 1;                             // 1: off
  float epsilon_cutoff = 0, eta_cutoff = 0, top_a = 0;
  float xtc_probability = 0, xtc_threshold = 0.1f;
  int mirostat = 0; // 0 or 2, which replaces the filters
  float mirostat_tau = 5, mirostat_eta = 0.1f;
  sampler_order samplers = {};

  // Against repetition
  int repetition_penalty_range = 0; // tokens that repetition_penalty looks back at; 0: all
  int no_repeat_ngram_size = 0;
  float dry_multiplier = 0, dry_base = 1.75f;
  int dry_allowed_length = 2;
  int dry_range = 0; // tokens that DRY looks back at; 0: most_dry_range
  token_set dry_breakers = {};

  logit_bias_map logit_bias = {};
  sequence_bias_list sequence_biases = {}; // bad words and biases of texts
  token_set allowed_token_ids = {};        // empty: all
  std::uint64_t seed = 0;
  int max_tokens = 16; // 0: the prompt is scored, and nothing generated
  int min_tokens = 0;  // until then neither EOS nor stop ids can be chosen, nor do stop strings end the answer
  bool ignore_eos = false;
  stop_id_set stop_token_ids = {};
  stop_strings stop = {};   // matched on text by the request, not by the sampler
  int thinking_budget = -1; // tokens of reasoning at most, of answers whose constraint knows its marks; -1: no bound
  int n = 1;
  int logprobs = -1;        // -1: none; 0: the chosen token's; k: and those of the k most likely
  int prompt_logprobs = -1; // the same of the prompt's tokens, but for its first

  int best_of = 0; // so many candidates are generated, and the n best returned; 0: n
  best_of_rank rank = best_of_rank::cumulative;

  technique_uses techniques = {};
  std::shared_ptr<const judged_prompt> judged_behind = {}; // what a judge reads ahead; null: the tokens' text

  /// Throws failure(bad_request, sentence, field) if a field is out of range or names an id outside the vocabulary.
  /// Takes no longer for long lists of ids.
  void validate(std::size_t vocab_size) const;

  /// Leaves of the techniques what they come to beside the other parameters, which have been read, once, by whoever
  /// reads a request. Throws failure(bad_request).
  void settle(const given_fields& given);

  /// The part of it that concerns best_of.
  void check_best_of() const;

  /// The part of it that concerns samplers which exclude each other.
  void check_samplers() const;

  /// The part of it that concerns techniques.
  void check_techniques() const;

  /// Whether the most likely token is taken rather than sampled.
  bool greedy() const { return temperature < 1e-5f; }

  /// Whether an extended_sampler is needed: any of the samplers that run on the host alone.
  bool extended() const;

  /// Whether each token's log-probability is needed.
  bool wants_logprobs() const { return logprobs >= 0 || best_of > n; }

  /// Whether the log-probabilities of the prompt are all that is wanted.
  bool scores_only() const { return max_tokens == 0 && prompt_logprobs >= 0; }

  /// Sequences that run at once for the request.
  int width() const;

  /// Whether they are judged together, by a group_strategy (group_strategy.hpp).
  bool grouped() const { return techniques.group() != nullptr; }

  /// How a technique judges the sequences together; nothing: none does.
  std::optional<group_kind> group() const;

  /// Whether a judge values the answers.
  bool judged() const { return group().value_or(group_kind{}).judged; }

  /// Whether processors make other scores of the model's.
  bool shaped() const;

  /// Whether temperature or filters change what is drawn.
  bool filtered() const;

  /// Whether it runs as two sequences that share their answer.
  bool paired() const { return group().value_or(group_kind{}).twin; }

  /// Whether the choices come best first, with their scores, once all are final.
  bool ranked() const { return best_of > n || group().value_or(group_kind{}).ranked; }
};

} // namespace troupe
