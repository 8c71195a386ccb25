// Steering adds vectors to the residual stream behind layers, for the rows of single requests. A steering_choice is
// what a request asks for. A steering is the resulting vectors, which its rows carry through the scheduler to the
// decoder. Immutable plain data; any thread.
#pragma once

#include "runtime/techniques/steering/technique.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Added to the output of each layer, [hidden]; empty: nothing.
using layer_directions = std::vector<std::vector<float>>;

/// The sum of a request's choices.
struct steering {
  layer_directions layers;    // [layers]
  std::uint64_t checksum = 0; // of the values, not 0: K and V of one sum are of no use to another
};

/// Consecutive rows of a step that are steered.
struct steered_rows {
  std::shared_ptr<const steering> by;
  std::int32_t first_row = 0, rows = 0;
};

/// Adds what rows are steered by. The rows' results are those of `by` alone: they do not depend on other rows. For
/// backends whose device memory is the host's. `rows` and `backend` must outlive the hook. Empty if nothing is steered.
layer_hook steer(kernels::backend& backend, std::span<const steered_rows> rows);

} // namespace troupe
