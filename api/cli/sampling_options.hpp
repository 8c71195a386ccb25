// The sampling flags of `troupe run` and `troupe chat`. Flags that are given override the model's defaults.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/sampling/sampling_params.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::cli {

struct sampling_options {
  sampling_params values{.max_tokens = 512};
  std::set<std::string_view> given;  // names in sampling_table.hpp of the flags on the command line
  std::optional<std::uint64_t> seed; // if not given: random
  std::vector<std::string> stop;
  std::vector<std::string> bad_words;
  std::optional<std::vector<std::string>> dry_breakers; // if not given: the usual ones
  std::vector<std::string> biases;                      // TEXT=NUMBER or ID=NUMBER
  flag_values techniques;                               // texts of their flags

  /// Throws failure(bad_request) for whatever is wrong with them in themselves, whichever model is to answer.
  void check() const;

  /// The parameters of one request for `n` answers to a model with such defaults. Throws failure(bad_request) if flags
  /// contradict each other.
  sampling_params over(const generation_defaults& model, int n = 1) const;

  /// What decides how tokens of such a request are drawn, and whence it is: "temperature 0.5 as given; top_k 40, ...".
  std::string told(const sampling_params& used, const generation_defaults& model) const;

  /// Adds what names texts, in tokens of the model that is to answer; without tokenizer `encode` is empty. Throws
  /// failure(bad_request).
  void add_texts(sampling_params& params, const encode_text& encode) const;

  /// The sequences that an engine which serves only such requests, one at a time, should run at once, at most `limit`
  /// unless they belong together. More would only make the KV cache larger. Throws as over().
  int max_sequences(int limit, int n = 1) const;
};

/// The model's tokenizer; empty if it has none.
encode_text text_encoder(const model_info& model);

void add_sampling_options(CLI::App& command, sampling_options& options);

} // namespace troupe::cli
