// Decides into how many microbatches the sequences that decode are divided where steps pass through several stages. A
// sequence can have its next row once its last token is known, so with one microbatch all stages but one are idle; with
// as many as stages, all are busy. But weights are read for each microbatch, and two halves of a batch cost more than
// half of it each. So the number is the one with which all sequences gain a token in the least time, by what steps cost
// and by the share of the slowest stage; while there are prompts, at least as many as stages. Results never depend on
// it. Single-threaded.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"

#include <cstdint>
#include <span>

namespace troupe {

class microbatch_policy {
public:
  /// `fixed`: always so many; 0: by cost.
  microbatch_policy(std::int32_t stages, std::int32_t fixed);

  /// A step took `ms`, of which `stage_ms` in each stage, the rest in choosing tokens.
  void finished(double ms, std::span<const double> stage_ms);

  /// Decides anew. `decoding`: a step of all `sequences` that decode; `prompts`: others are to be computed, too.
  void decide(const step_cost& cost, const step_shape& decoding, int sequences, bool prompts);

  std::int32_t count() const { return count_; }

private:
  double round_ms(const step_cost& cost, const step_shape& decoding, std::int32_t count, int sequences) const;

  std::int32_t stages_, fixed_, count_;
  double slowest_; // share of the slowest stage, or of the choice of tokens, in the time of a step
};

} // namespace troupe
