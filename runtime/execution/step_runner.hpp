// What an executor and a sampler do, apart from being actors: a step_runner turns plans into logits, a step_sampler logits
// into tokens. On a CPU all is done when a call returns. A device that works by itself has it queued then, and events say
// when it is done: they are passed on with the data, and nobody waits for them on the host. Each is used by one thread,
// which also makes it.
#pragma once

#include "kernels/device_event.hpp"
#include "runtime/scheduling/step.hpp"

#include <memory>

namespace troupe {

/// Logits that a runner lends; given back by dropping them.
struct step_output {
  std::shared_ptr<const float> logits; // [plan.logit_rows.size(), vocab], memory of the device
  std::size_t vocab = 0;
  kernels::device_event_ptr ready; // null: now
};

/// Where the tokens of a step are: in `sampled`, or on the device.
struct step_tokens {
  std::uint64_t step = 0;
  std::shared_ptr<const step_result> sampled; // null: they are in
  std::shared_ptr<const std::int32_t> slots;  // device memory, [max_sequences]: the token last sampled for each slot
  kernels::device_event_ptr ready;            // when they are
};

class step_runner {
public:
  virtual ~step_runner() = default;

  /// What was sampled in a step, before the first plan that has placeholders for it.
  virtual void take(const step_tokens& tokens) = 0;

  /// One forward pass. Plans come in their order.
  virtual step_output run(const step_plan& plan) = 0;

  /// Milliseconds that steps have taken on the device so far, each from when it could begin there to its end; waits for
  /// the last. 0 where that is not measured.
  virtual double device_ms() { return 0; }
};

class step_sampler {
public:
  virtual ~step_sampler() = default;

  virtual step_tokens sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) = 0;

  /// Of the oldest sample whose tokens were left on the device, once the device has said that they are sampled.
  virtual step_result collect() = 0;

  /// Throws device_error where the device has failed, and would never say so.
  virtual void check() const = 0;
};

} // namespace troupe
