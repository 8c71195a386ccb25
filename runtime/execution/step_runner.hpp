// The work of the executor and sampler actors, without the actors: a step_runner turns plans into logits, a
// step_sampler turns logits into tokens. On a CPU the work is done when a call returns. On an asynchronous device it
// has been queued; events travel with the data, so that no thread of the host waits for it. Each object is made and
// used by one thread.
#pragma once

#include "kernels/device_event.hpp"
#include "runtime/model/precision.hpp"
#include "runtime/sampling/judging.hpp"
#include "runtime/scheduling/step.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace troupe::kernels {
class activation_sparsity; // kernels/activation_sparsity.hpp
}

namespace troupe {

struct model_weights;
struct softmax_tally; // model_counters.hpp

/// The largest steps that a runner and a sampler are given.
struct step_sizes {
  int rows = 0;
  int sequences = 0;         // that run at once
  int context = 0;           // tokens of one sequence
  bool looks_inside = false; // techniques may have inner_rows

  int logit_rows() const { return sequences + extra_logit_rows; }
};

/// Everything that a runner needs to know of its model.
struct runner_spec {
  std::shared_ptr<const model_weights> weights;
  troupe::precision precision = kernels::dtype::f32;
  step_sizes sizes;
  std::int32_t blocks = 0;                     // of the KV cache
  std::int32_t host_blocks = 0;                // of the host block pool; 0: no swapping
  std::int32_t snapshots = 0;                  // of the states of recurrent layers
  std::size_t image_offset = 0;                // bytes of a block's image before those of this runner
  std::size_t state_offset = 0;                // likewise of a state's
  std::shared_ptr<softmax_tally> softmax = {}; // gets what devices count; null: nobody asks
};

/// How a sampler works on the host: masks, and groups that are judged.
struct host_settings {
  int threads = 0;                 // that make masks; 0: the sampler's own
  std::function<void()> late = {}; // called on any thread when there is something for step_sampler::collect_late
  judge_line judge = {};           // to whoever values answers
  // Runs the jobs of these threads in their place, in order; empty: there is nobody
  std::function<void(std::function<void()>)> elsewhere = {};
};

/// How long the sampling of a step that took `ms` waits for masks in all.
inline std::chrono::steady_clock::duration mask_patience(double ms) {
  return std::chrono::microseconds(static_cast<std::int64_t>(std::max(1000.0, 50 * ms)));
}

/// Everything that a sampler needs to know of its model.
struct sampler_spec {
  std::vector<token_id> eos_ids;
  int vocab = 0;
  int max_sequences = 0;
  host_settings host = {};
};

/// Rows [vocab] that rows of a plan's logits are contrasted with: a second model's, or those behind inner layers.
struct contrast_rows {
  std::vector<std::vector<std::span<const float>>> of;   // [plan.logit_rows.size()]
  std::vector<std::shared_ptr<const float>> memory = {}; // lent as the logits are

  other_rows at(std::int32_t logit_row) const { return of[static_cast<std::size_t>(logit_row)]; }
};

/// A row of logits [vocab] that a token is chosen by, and those that it is contrasted with.
struct judged_logits {
  judged_logits(std::span<const float> row, other_rows rows = {}) : logits(row), others(rows) {}

  std::span<const float> logits;
  other_rows others;
};

/// What one stage of a pipeline gives the next: the residual stream of a step's rows, and what goes along. Lent, as
/// logits are.
struct stage_rows {
  std::shared_ptr<const float> rows;    // [plan.tokens.size(), residual_width()], host memory
  kernels::device_event_ptr ready = {}; // when they are there; null: now
  std::vector<token_id> tokens = {};    // of the rows, with placeholders filled; empty: only a device knows them
  std::vector<std::shared_ptr<const void>> states = {}; // what inner_rows pass on, each its own; null: nothing
};

/// Logits that a runner lends; dropping them returns them.
struct step_output {
  std::shared_ptr<const float> logits; // [plan.logit_rows.size(), vocab], device memory
  std::size_t vocab = 0;
  kernels::device_event_ptr ready;          // null: now
  double ms = 0;                            // that the forward pass took; 0: not known
  std::shared_ptr<const float> hidden = {}; // [plan.hidden_rows.size(), width], host memory
  std::size_t width = 0;
  std::shared_ptr<const contrast_rows> contrast = {}; // null: none
  std::shared_ptr<const stage_rows> passed = {};      // for the next stage, instead of logits; null: there is none
  std::vector<double> stage_ms = {};                  // of `ms`, each stage's; empty: there is one
};

/// A step's logits, lent by the executor to the sampler.
struct step_logits {
  std::shared_ptr<const step_plan> plan;
  step_output output;
};

/// The tokens of a step: in `sampled`, or on the device.
struct step_tokens {
  std::uint64_t step = 0;
  std::shared_ptr<const step_result> sampled; // null: on the device
  std::shared_ptr<const std::int32_t> slots;  // device memory, [max_sequences]: the token last sampled for each slot
  kernels::device_event_ptr ready;            // when `slots` holds them
};

class step_runner {
public:
  virtual ~step_runner() = default;

  /// Receives a step's tokens, before the first plan that has placeholders for them.
  virtual void receive(const step_tokens& tokens) = 0;

  /// One forward pass, behind the plan's moves. Plans come in order. `before`: what the stage before this one gave;
  /// null: this is the first.
  virtual step_output run(const step_plan& plan, const stage_rows* before = nullptr) = 0;

  /// Moves blocks without a pass. Images saved to, here and by `run`, have their bytes when the call returns.
  virtual void move(std::span<const block_move> moves) = 0;

  /// Bytes of a block's image, or of this stage's part of one.
  virtual std::size_t block_bytes() const = 0;

  /// Total milliseconds that steps have taken on the device so far, each from when it could begin there to its end;
  /// waits for the last. 0 unless the device can time steps.
  virtual double device_ms() { return 0; }

  /// Bytes of weights that steps have skipped so far, because only zeros would multiply them.
  virtual std::size_t skipped_bytes() const { return 0; }

  /// What is known of zeros that were skipped; null where nothing is.
  virtual const kernels::activation_sparsity* sparsity() const { return nullptr; }
};

class step_sampler {
public:
  virtual ~step_sampler() = default;

  /// Begins what can be done for a plan before its logits are there: masks of constrained sequences. Optional.
  virtual void prepare(const step_plan& plan) { static_cast<void>(plan); }

  /// Whether masks that are still being made would defer a part of what `sample` of this plan would return, or `collect`
  /// where its tokens are on a device. Then host_settings::late is called as each of them has been made.
  virtual bool lacks_masks(const step_plan& plan) { return static_cast<void>(plan), false; }

  virtual step_tokens sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) = 0;

  /// The result of the oldest sample whose tokens were left on the device, once the device has reported them sampled.
  virtual step_result collect() = 0;

  /// What earlier steps have deferred (step_result::deferred) and can be sampled now, after host_settings::late was
  /// called; perhaps nothing.
  virtual step_result collect_late() { return {}; }

  /// How searches that have waited for this verdict go on; perhaps nothing, as they may have ended.
  virtual step_result settle(const verdict& its) { return static_cast<void>(its), step_result(); }

  /// Throws device_error if the device has failed, and would never report.
  virtual void check() const = 0;
};

} // namespace troupe
