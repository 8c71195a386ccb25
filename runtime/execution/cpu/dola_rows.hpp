// The rows that DoLa contrasts a step's logits with. During the forward pass it keeps the states of wanted rows behind
// the candidate layers. After the pass it applies the head to these states, some at a time, and keeps of each row only
// the logits of the layer that is farthest from the last. Its memory is allocated when a step first needs it. In a
// pipeline each stage keeps the states behind its own layers and passes on what it has. For backends whose device
// memory is the host's. Owned by a runner; used by its thread.
#pragma once

#include "runtime/execution/buffer_pool.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/model/decoder.hpp"
#include "runtime/sampling/row_contrast.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class dola_rows {
public:
  /// Serves the steps of `graph`, and uses the graph's backend.
  dola_rows(decoder& graph, kernels::backend& backend) : decoder_(graph), backend_(backend) {}

  /// Bytes that it takes at most.
  static std::size_t memory(const step_sizes& sizes, const model_config& config, kernels::dtype compute);

  /// The hook of a plan's forward pass: calls `first`, if there is one, then keeps the states of its layered rows.
  /// `first` itself if nothing is wanted. Valid until the next plan. `before`: the states that stages before this one
  /// have kept; null: none have.
  layer_hook keep_states(const step_plan& plan, layer_hook first, const void* before = nullptr);

  /// The states kept so far, for the next stage, which the head belongs to, or one behind it. Null if nothing is
  /// wanted.
  std::shared_ptr<const void> pass_on();

  /// After that pass, whose logits are f32 [plan.logit_rows.size(), vocab]. Null if nothing is wanted.
  std::shared_ptr<const contrast_rows> choose(const step_plan& plan, const kernels::tensor& logits);

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

  void keep(int layer, const kernels::tensor& residual);
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
