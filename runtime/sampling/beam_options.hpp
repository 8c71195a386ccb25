// Reads beams and best_of as clients of all interfaces ask for them: what follows from the given options, and which of
// them contradict each other.
#pragma once

#include "runtime/sampling/sampling_params.hpp"

#include <optional>
#include <string_view>

namespace troupe {

/// Decides whether beams are wanted: as `use_beam_search` says or, if it is not given, where several beams, or a
/// technique of its own for them, are asked for. Sets `num_beams` accordingly, by default to `best_of` or `n`. Throws failure(bad_request)
/// naming the field if the options contradict each other.
void settle_beams(sampling_params& params, std::optional<bool> use_beam_search);

/// Decides whether beams are drawn: as `do_sample` says, transformers' name, or, if it is not given, where temperature or
/// filters would else have no effect. Without beams, `do_sample` as false means greedy choices. Once all else is read.
void settle_draws(sampling_params& params, std::optional<bool> do_sample);

/// The part of sampling_params::validate() that concerns beams and best_of: throws failure(bad_request) naming the
/// field if an option has no effect or no defined meaning beside others.
void check_beams(const sampling_params& params);

/// "true", "false" or "never". Throws failure(bad_request).
early_stopping parse_early_stopping(std::string_view text);

/// "cumulative" or "mean". Throws failure(bad_request).
best_of_rank parse_best_of_rank(std::string_view text);

} // namespace troupe
