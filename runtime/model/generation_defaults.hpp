// How a model's authors recommend to generate with it. Plain data; read with the model's configuration.
#pragma once

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/types.hpp"

#include <string>
#include <vector>

namespace troupe {

/// What `generation_config.json` says. Requests override it.
struct generation_defaults {
  std::vector<token_id> stops;      // end of sequence; falls back to config.json's `eos_token_id`
  sampling_params sampling;         // within the ranges of sampling_table.hpp; see default_sampling.hpp
  std::string sampling_source;      // the file that names a temperature or a filter; empty: none does
  std::vector<std::string> remarks; // one line per value that was out of range, for the log
};

} // namespace troupe
