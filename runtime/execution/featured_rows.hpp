// The rows of a plan that a runner treats in a special way, feature by feature (runtime/scheduling/row_features.hpp).
#pragma once

#include "runtime/adapters/adapter.hpp"
#include "runtime/scheduling/prompt_embeddings.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/steering/steering.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

std::vector<steered_rows> steered_rows_of(const step_plan& plan);
std::vector<adapted_rows> adapted_rows_of(const step_plan& plan);

/// Rows of a step that come from embeddings rather than from their tokens.
struct given_rows {
  std::shared_ptr<const prompt_embeddings> from;
  std::int32_t first_row = 0; // of the step
  std::int32_t first = 0;     // of the embeddings
  std::int32_t rows = 0;
};
std::vector<given_rows> given_rows_of(const step_plan& plan);

/// Places in `sequences` of those whose rows the amateur computes, too.
std::vector<std::int32_t> contrasted_places(const step_plan& plan);

/// Rows of logits that are contrasted with those behind inner layers (DoLa).
struct layered_logits {
  std::int32_t logit_row = 0, rows = 0; // indices into step_plan::logit_rows
  dola_layers layers;                   // of the model; not empty
};
std::vector<layered_logits> layered_logits_of(const step_plan& plan);

} // namespace troupe
