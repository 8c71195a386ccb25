// Decides how many rows of prompts join the sequences that decode in a step: a fixed number of rows in all, or,
// measured, the fewest that reach nine tenths of the best tokens per second (97 % while no sequence decodes, which a
// long step would delay); in either case no more than end within a target time. Decoding rows are always included, and,
// unless the number is fixed, at least `least_prompt_rows` of prompts, so that no prompt waits for ever. Owned by the
// scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"

#include <cstdint>
#include <string>

namespace troupe {

class step_budget {
public:
  static constexpr std::int32_t least_prompt_rows = 16;

  struct limits {
    std::int32_t rows = 512; // of any step
    bool measured = false;   // fewer, by what steps cost
    double target_ms = 0;    // that a step may take; 0: no target
  };

  explicit step_budget(limits of) : limits_(of) {}

  /// Rows that the next step may have, before the target. While little is known, grows by doubling, up to twice what
  /// seems efficient. Once in fifty steps with prompts, tries a size, up to four times that, whose cost is no longer
  /// certain.
  std::int32_t rows(const step_cost& cost) const;

  /// Begins a step. `decoding`: some sequence decodes in it.
  void begin(const step_cost& cost, bool decoding = true);

  /// How many of `wanted` rows of a prompt from `position` on may join what the step has and what was demanded.
  std::int32_t room(const step_cost& cost, std::int32_t position, std::int32_t wanted) const;

  /// Rows were demanded, and may be granted.
  void demand(std::int32_t position, std::int32_t rows, bool of_prompt) { add(demanded_, position, rows, of_prompt); }

  /// Rows became part of the step.
  void grant(std::int32_t position, std::int32_t rows, bool of_prompt) { add(granted_, position, rows, of_prompt); }

  /// All demands were answered.
  void settle() { demanded_ = granted_; }

  /// A line for the log, once the budget has settled and whenever it or its time has changed by half; mostly empty.
  /// Call it after each step.
  std::string news(const step_cost& cost);

private:
  struct content {
    step_shape shape;
    std::int32_t of_prompts = 0;
  };
  std::int32_t efficient_rows(const step_cost& cost) const;
  static void add(content& to, std::int32_t position, std::int32_t rows, bool of_prompt);

  limits limits_;
  bool decoding_ = true;
  std::int32_t rows_ = 0, efficient_rows_ = 0; // of the step; other than efficient: a trial
  content granted_, demanded_;
  std::int32_t steps_since_trial_ = 0; // that had prompts
  std::int32_t steps_until_news_ = 32;
  double reported_rows_ = 0, reported_ms_ = 0;
};

} // namespace troupe
