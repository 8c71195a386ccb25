// What a scheduler counts: sequences, steps, rows, tokens and guesses; and what its steps cost.
#pragma once

#include "runtime/support/statistic.hpp"

#include <array>
#include <cstdint>

namespace troupe {

/// The model of what a step costs (step_cost.hpp) as numbers, for metrics and the log.
struct step_cost_summary {
  /// Rows between which the time is linear.
  static constexpr std::array<std::int32_t, 14> knots{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

  std::uint64_t steps = 0;                    // observed
  std::array<double, knots.size()> knot_ms{}; // steps of `knots` rows, without context and logits
  double logit_row_ms = 0, attended_ms = 0;   // each
  double read_ms = 0;
  double error = 0; // mean of |measured − expected| / expected, of recent steps
};

struct scheduler_counters {
  std::uint64_t running = 0, waiting = 0, paused = 0; // sequences
  std::uint64_t steps = 0, prefill_rows = 0, decode_rows = 0, discarded_rows = 0;
  std::uint64_t prompt_tokens = 0, generated_tokens = 0, preemptions = 0;
  std::uint64_t guess_runs = 0, guessed_tokens = 0, accepted_tokens = 0; // proposals, their guesses, of these right
  std::uint64_t guess_trees = 0, guess_runs_ahead = 0; // proposals that branched; that were made beside a step
  std::uint64_t step_rows = 0;                         // that a step may have now
  // Predictions of answers' lengths: how many have ended, and their log-loss in millionths of a nat.
  std::uint64_t answers_predicted = 0, length_log_loss = 0, length_marginal_log_loss = 0;
  std::uint64_t shorter_answers = 0, longer_answers = 0; // than nine of ten were predicted to be
  step_cost_summary cost;                                // no statistic: it cannot be summed
};

template <>
inline constexpr std::array statistics_of<scheduler_counters>{
  gauge_of(&scheduler_counters::running, "troupe_sequences_running", "Sequences that take part in steps."),
  gauge_of(&scheduler_counters::waiting, "troupe_sequences_waiting", "Sequences that wait for room."),
  gauge_of(&scheduler_counters::paused, "troupe_sequences_paused", "Sequences whose client reads too slowly."),
  counter_of(&scheduler_counters::prompt_tokens, "troupe_prompt_tokens_total",
             "Tokens of prompts whose computation began, again after a restart."),
  counter_of(&scheduler_counters::generated_tokens, "troupe_generated_tokens_total", "Tokens sampled."),
  counter_of(&scheduler_counters::steps, "troupe_steps_total", "Steps computed."),
  counter_of(&scheduler_counters::prefill_rows, "troupe_prefill_rows_total", "Rows of prompts computed."),
  counter_of(&scheduler_counters::decode_rows, "troupe_decode_rows_total", "Rows of generated tokens computed."),
  counter_of(&scheduler_counters::discarded_rows, "troupe_discarded_rows_total", "Rows computed and discarded."),
  counter_of(&scheduler_counters::preemptions, "troupe_preemptions_total", "Sequences preempted for lack of blocks."),
  counter_of(&scheduler_counters::guess_runs, "troupe_spec_decode_num_drafts_total",
             "Times that guesses of next tokens were checked."),
  counter_of(&scheduler_counters::guess_trees, "troupe_spec_decode_num_trees_total", "Times that these branched."),
  counter_of(&scheduler_counters::guess_runs_ahead, "troupe_spec_decode_num_drafts_ahead_total",
             "Times that guesses were made while the step before was computed."),
  counter_of(&scheduler_counters::guessed_tokens, "troupe_spec_decode_num_draft_tokens_total", "Guesses judged."),
  counter_of(&scheduler_counters::accepted_tokens, "troupe_spec_decode_num_accepted_tokens_total",
             "Guesses that were right."),
  counter_of(&scheduler_counters::answers_predicted, "troupe_answer_lengths_total",
             "Answers that have ended, whose length had been predicted."),
  counter_of(&scheduler_counters::length_log_loss, "troupe_answer_length_log_loss_micronats_total",
             "Log-loss of these predictions."),
  counter_of(&scheduler_counters::length_marginal_log_loss, "troupe_answer_length_marginal_log_loss_micronats_total",
             "Log-loss that one prediction for all answers would have had."),
  counter_of(&scheduler_counters::shorter_answers, "troupe_answers_shorter_total",
             "Answers in the shortest tenth of what was predicted for them."),
  counter_of(&scheduler_counters::longer_answers, "troupe_answers_longer_total",
             "Answers in the longest tenth of what was predicted for them."),
  gauge_of(&scheduler_counters::step_rows, "troupe_step_rows", "Rows that a step may have now."),
};
static_assert(well_described<scheduler_counters>(sizeof(step_cost_summary)));

} // namespace troupe
