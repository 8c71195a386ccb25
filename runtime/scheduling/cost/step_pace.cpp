#include "runtime/scheduling/cost/step_pace.hpp"

#include "runtime/scheduling/cost/step_budget.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

double prefill_ms(const replica_pace& at, const step_shape& prompts) {
  const auto room = std::max<double>(at.step_rows - at.decodes.rows, step_budget::least_prompt_rows);
  const auto full_steps = std::max(0.0, std::ceil(prompts.rows / room) - 1);
  const auto step_of = [&](double rows) { return expected_ms(at.cost, at.decodes + step_shape{.rows = rows}); };
  const auto contexts = prompts.logit_rows * at.cost.logit_row_ms + prompts.attended * at.cost.attended_ms +
    prompts.read * at.cost.read_ms;
  return full_steps * step_of(room) + step_of(prompts.rows - full_steps * room) + contexts;
}

double decode_ms(const replica_pace& at, double sequences, double context) {
  const auto shape = at.decodes + step_shape{1, 1, context, context};
  const auto mean = shape.read / shape.rows;
  return expected_ms(at.cost, {sequences, sequences, sequences * mean, sequences * mean});
}

} // namespace troupe
