// The rows that DoLa contrasts a step's logits with. During the forward pass it keeps the states of wanted rows behind
// the candidate layers. After the pass it applies the head to these states, some at a time, and keeps of each row only
// the logits of the layer that is farthest from the last. Its memory is allocated when a step first needs it. In a
// pipeline each stage keeps the states behind its own layers and passes on what it has. For backends whose device
// memory is the host's. Owned by a runner; used by its thread.
#pragma once

#include "runtime/execution/buffer_pool.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/sampling/row_contrast.hpp"
#include "runtime/techniques/dola/dola_layers.hpp"
#include "runtime/techniques/hooks.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// Rows of logits that are contrasted with those behind inner layers.
struct layered_logits {
  std::int32_t logit_row = 0, rows = 0; // indices into step_plan::logit_rows
  dola_layers layers;                   // of the model; not empty
};
std::vector<layered_logits> layered_logits_of(const step_plan& plan);

class dola_rows final : public inner_rows {
public:
  /// Serves the steps of `graph`, and uses the graph's backend.
  dola_rows(decoder& graph, kernels::backend& backend) : decoder_(graph), backend_(backend) {}

  /// Bytes that it takes at most.
  static std::size_t memory(const step_sizes& sizes, const model_config& config, kernels::dtype compute);

  layer_hook keep(const step_plan& plan, const void* before) override;
  std::shared_ptr<const void> pass_on() override;
  void contrast(const step_plan& plan, const kernels::tensor& logits, contrast_rows& to) override;

private:
  /// A row whose state behind a layer is kept.
  struct candidate {
    int layer = 0;
    std::int32_t row = 0; // of the step
    std::size_t of = 0;   // index in `judged_`
  };

  /// A row of logits that is contrasted.
  struct judged_row {
    std::int32_t logit_row = 0;
    std::size_t candidates = 0;
    std::optional<normalised_row> last = {}; // its logits, if there is a choice
    double farthest = 0;                     // of the candidates so far
    bool found = false;
  };

  void keep_layer(int layer, const kernels::tensor& residual);
  void consider(const candidate& c, std::span<const float> inner, const kernels::tensor& logits, float* chosen);
  kernels::tensor states(std::size_t first, std::size_t count) const;
  std::size_t state_bytes() const;
  std::size_t kept_before(int first_layer) const;

  decoder& decoder_;
  kernels::backend& backend_;
  std::vector<candidate> candidates_; // by layer, then in the order of `judged_`; each has its row of `states_`
  std::vector<judged_row> judged_;
  std::vector<std::int32_t> rows_; // scratch of `keep`
  kernels::buffer states_, some_;
  std::size_t states_bytes_ = 0, some_bytes_ = 0;
  buffer_pool chosen_, passed_;
};

} // namespace troupe
