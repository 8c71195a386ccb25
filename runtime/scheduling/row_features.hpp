// How the rows of a request are computed beside what their tokens say. One immutable value, made when the request is
// checked (runtime/engine/checked_generation) and read by the runners of its steps (runtime/execution/featured_rows);
// all between only pass it on. A new feature of this kind is a member here, and a part of the salt if K and V depend
// on it.
#pragma once

#include "runtime/scheduling/prefix_salt.hpp"
#include "runtime/techniques/technique_uses.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

struct row_features {
  technique_uses used = {}; // fitted to the model
  prefix_salt salt = 0;     // of what K and V depend on, or are kept apart by
};

/// Null: none.
using row_features_ptr = std::shared_ptr<const row_features>;

/// A sequence of a step with features.
struct featured_sequence {
  row_features_ptr features;
  std::int32_t place = 0;                       // in step_plan::sequences
  std::int32_t logit_row = 0, sampled_rows = 0; // places in step_plan::logit_rows of the rows that it samples from
};

} // namespace troupe
