// How a model's authors recommend to generate with it. Plain data; read with the model's configuration.
#pragma once

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/types.hpp"

#include <string>
#include <vector>

namespace troupe {

/// What `generation_config.json` says. Requests override it.
struct generation_defaults {
  std::vector<token_id> stops; // end of sequence; falls back to config.json's `eos_token_id`
  bool sample = false;
  sampling_params sampling;         // for requests that say nothing; within the ranges of sampling_table.hpp
  std::vector<std::string> remarks; // one line per value that was out of range, for the log
};

} // namespace troupe
