// The data of one step on its way round: block_request → block_grant → step_plan → step_result. Plain values without
// pointers into anyone's state; the actors pass them on as shared_ptr<const T>.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/sampling/sampler.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

using token_list = std::shared_ptr<const std::vector<token_id>>;

// -- scheduler → block manager ----------------------------------------------------------------------------------------

/// Tokens of a sequence whose K/V will have been computed before any later step runs: full blocks become shareable.
struct block_commit {
  sequence_id sequence;
  std::vector<token_id> tokens; // in order, following the last commit's
};

/// `to` starts with everything that `from` has; the first to write the shared partial block gets a copy of it.
struct block_fork {
  sequence_id from, to;
};

/// Room for the next `rows` positions of a sequence. Granted whole, in part or not at all; once one that opens is refused,
/// so are those behind it: nobody overtakes.
struct block_demand {
  sequence_id sequence;
  std::int32_t rows = 0;
  token_list open;            // for a sequence that has no blocks yet: its tokens, whose longest cached prefix it gets
  std::int32_t watermark = 0; // refuse where fewer blocks than this would stay available
};

/// Whether it pays at the moment to park evicted blocks in host memory, and to restore what is parked there.
struct swap_decision {
  bool swap_out = false, swap_in = false;
};

/// Done in this order: commits, forks, releases, demands.
struct block_request {
  std::vector<block_commit> commits;
  std::vector<block_fork> forks;
  std::vector<sequence_id> releases;
  std::vector<block_demand> demands; // most important first
  swap_decision swap;

  bool empty() const { return commits.empty() && forks.empty() && releases.empty() && demands.empty(); }
};

// -- block manager → scheduler ----------------------------------------------------------------------------------------

struct block_answer {
  sequence_id sequence;
  std::int32_t first_position = 0; // of the rows granted; after an `open`, the length of the cached prefix
  std::int32_t rows = 0;           // granted; 0: refused
  std::int32_t first_block = 0;    // where its block table starts in `tables`
  std::int32_t blocks = 0;
};

/// A whole block, K and V of all layers, to be moved before a step. Only in the order in which they were listed do moves
/// have the meaning that they were planned with: a block may be parked, restored into and copied to within one step, a
/// host slot read and then reused.
struct block_move {
  enum class kind : std::uint8_t {
    copy,     // from block to block (copy-on-write)
    swap_out, // from block to host slot
    swap_in,  // from host slot to block
  };
  kind what = kind::copy;
  std::int32_t from = 0, to = 0;
};

struct block_grant {
  std::vector<block_answer> answers; // one per demand, in their order
  std::vector<std::int32_t> tables;  // of the sequences with rows > 0, one after another
  std::vector<block_move> moves;     // to be done before the step, in this order
};

// -- scheduler → executor → sampler -----------------------------------------------------------------------------------

/// All that is needed to (re)build one sequence's sampling state: its transcript.
struct sampling_start {
  std::shared_ptr<const sampling_params> params;
  token_list prompt;
  std::vector<token_id> emitted;
};

/// One token to be sampled from one row of logits. Several may sample from the same row (n > 1).
struct sample_demand {
  sequence_id sequence;
  std::int32_t slot = 0;
  std::int32_t logit_row = 0;                  // index into step_plan::logit_rows
  std::shared_ptr<const sampling_start> start; // on a sequence's first sample since it was (re)admitted
};

/// A token that is not known yet when the step is planned: the one last sampled for `slot`.
constexpr token_id placeholder(std::int32_t slot) { return -1 - slot; }
constexpr std::int32_t slot_of(token_id placeholder) { return -1 - placeholder; }

struct step_plan {
  std::uint64_t step = 0;
  std::uint64_t after_tokens_of = 0; // the step whose samples fill the placeholders; 0: there are none
  std::vector<token_id> tokens;      // [rows], known ids or placeholders
  std::vector<kernels::sequence_rows> sequences;
  std::vector<std::int32_t> block_tables;
  std::vector<block_move> moves;        // in this order, before anything else
  std::vector<std::int32_t> logit_rows; // rows whose logits are wanted
  std::vector<sample_demand> samples;
  std::vector<sequence_id> ended; // since the last plan: their sampling state may go
};

// -- sampler → scheduler ----------------------------------------------------------------------------------------------

struct sequence_sample {
  sequence_id sequence;
  std::int32_t slot = 0;
  sampled_token token;
};

struct failed_sample {
  sequence_id sequence;
  error why;
};

struct step_result {
  std::uint64_t step = 0;
  std::vector<sequence_sample> sampled;
  std::vector<failed_sample> failed; // these sequences end
};

} // namespace troupe
