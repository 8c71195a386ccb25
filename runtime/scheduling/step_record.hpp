// What one step did: one record for each, sent to whoever watches. What shows an engine at work (a page, the log,
// traces) reads it. Plain values.
#pragma once

#include "runtime/scheduling/request_ledger.hpp"
#include "runtime/support/types.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// Rows by what they held, and tokens that needed none of their own yet.
struct step_rows {
  std::uint64_t decode = 0, prefill = 0; // without guesses
  std::uint64_t guesses_kept = 0, guesses_lost = 0;
  std::uint64_t forced = 0; // tokens that a constraint forced, to be computed by later steps
};

/// Of the KV cache, for this step.
struct step_blocks {
  std::uint64_t granted = 0; // to sequences, beside those that they had or found cached
  std::uint64_t copied = 0, evicted = 0, swapped_out = 0, swapped_in = 0;
};

/// Sequences at the end of the step.
struct step_sequences {
  std::uint64_t running = 0, waiting = 0, paused = 0;
};

/// Sequences that did not go on in this step, by why.
struct step_waits {
  std::uint64_t blocks = 0;    // asked for room and got none
  std::uint64_t preempted = 0; // lost their blocks or slots
  std::uint64_t masks = 0;     // whose mask was late
  std::uint64_t judge = 0;     // searches that wait for a judge
};

/// What one sequence did in the step, or why it did nothing.
struct step_lane {
  using kind = wait_cause; // from `decode` to `paused`
  sequence_id sequence = {};
  kind what = kind::decode;
  std::int32_t rows = 0;
  std::int32_t position = 0; // of the first of them
};

/// Further ones are left out of a record.
inline constexpr std::size_t most_step_lanes = 256;

struct step_record {
  std::chrono::steady_clock::time_point end = {}; // by the clock of actors
  int replica = 0;
  std::uint64_t step = 0;            // numbered from 1 by each life of a scheduler
  double ms = 0;                     // that it took; 0: unknown
  std::vector<double> stage_ms = {}; // of these, each stage of the executor; empty: not measured apart
  // Unless someone watches, there is a record only where there is a remark, and it has no more than that and the above.
  step_rows rows = {};
  step_blocks blocks = {};
  step_sequences sequences = {};
  step_waits waits = {};
  std::vector<step_lane> lanes = {};
  std::vector<std::int32_t> copies = {}; // blocks that were copied to, on write
  std::string remark = {};               // a line for the log; mostly empty
};

using step_sink = std::function<void(const std::shared_ptr<const step_record>&)>;

} // namespace troupe
