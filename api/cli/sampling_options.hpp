// The sampling flags of `troupe run` and `troupe chat`. Flags that are given override the model's defaults.
#pragma once

#include "runtime/model/model_config.hpp"
#include "runtime/sampling/sampling_params.hpp"

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::cli {

struct sampling_options {
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed; // unset: random for each request
  int max_tokens = 512;
  int min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;

  /// The parameters of one request to a model with these defaults.
  sampling_params over(const generation_defaults& defaults) const;
};

void add_sampling_options(CLI::App& command, sampling_options& options);

} // namespace troupe::cli
