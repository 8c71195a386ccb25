// A range of a model's layers, which one stage of a pipeline owns. Weights, KV cache, memory estimate and decoder of a
// model follow `model_config::part`, so a configuration with a span describes that part alone. Layers keep the numbers
// that they have in the whole model. Between two spans, the rows of the residual stream are passed on, f32.
#pragma once

namespace troupe {

struct layer_span {
  int first = 0, end = 0; // layers first to end - 1
  bool embeds = true;     // its rows are tokens; else they are what the span before it gave
  bool heads = true;      // it ends with the final norm and the head

  int count() const { return end - first; }
  bool operator==(const layer_span&) const = default;
};

} // namespace troupe
