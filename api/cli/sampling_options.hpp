// The sampling flags of `troupe run` and `troupe chat`. Flags that are given override the model's defaults.
#pragma once

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

  /// The parameters of one request to a model with such defaults.
  sampling_params over(const sampling_params& defaults) const;
};

void add_sampling_options(CLI::App& command, sampling_options& options);

/// --speculate, which the server has, too.
void add_speculate_option(CLI::App& command, speculation& source);

} // namespace troupe::cli
