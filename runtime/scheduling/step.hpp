// The data of one step, in the order in which it travels: block_request → block_grant → step_plan → step_result. Plain
// values that point into no actor's state; actors pass them on as shared_ptr<const T>.
#pragma once

#include "kernels/recurrent.hpp"
#include "kernels/tree_lines.hpp"
#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/pooling.hpp"
#include "runtime/sampling/sampler.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/scheduling/block_image.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"
#include "runtime/techniques/guess_request.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

// -- scheduler → block manager ----------------------------------------------------------------------------------------

/// Tokens of a sequence whose K/V is computed before any later step runs. Full blocks become shareable.
struct block_commit {
  sequence_id sequence;
  std::vector<token_id> tokens; // continue those of the last commit
};

/// `to` starts with the blocks of the first `length` positions of `from`. The first of the two to write a shared partial
/// block gets a copy of it.
struct block_fork {
  static constexpr auto whole = std::numeric_limits<std::int32_t>::max();

  sequence_id from, to;
  std::int32_t length = whole;
};

/// Another replica, that a sequence's blocks are sent to while its prompt is computed.
struct block_destination {
  std::uint64_t request = 0; // by its number here
  int replica = 0;
  token_list tokens; // whose full blocks are sent: a chain from its start
  prefix_salt salt = 0;

  std::int32_t blocks() const { return static_cast<std::int32_t>(tokens->size()) / kernels::block_tokens; }
};
using block_destination_ptr = std::shared_ptr<const block_destination>;

/// Room for `rows` positions of a sequence. Granted whole, in part or not at all. Once a demand that opens a sequence
/// is refused, so are all later ones that do: no sequence overtakes another.
struct block_demand {
  static constexpr auto anywhere = std::numeric_limits<std::int32_t>::max();

  sequence_id sequence;
  std::int32_t rows = 0;
  token_list open;              // for a sequence without blocks: its tokens; it is given their longest cached prefix
  std::int32_t reserve = 0;     // refuse if fewer blocks than this would stay available
  std::int32_t from = anywhere; // its first row, if what was granted from there on (wrong guesses) is taken back;
                                // with `open`: the cached prefix may be at most so long
  prefix_salt salt = 0;         // with `open`
  bool whole = false;           // never granted in part
  std::int32_t guesses = 0;     // of the rows, the last ones that may be taken back
  std::int32_t branches = 0;    // of the step, further rows: guesses at the positions of others, in a tree
  std::int32_t spare = 0;       // blocks for these behind the sequence's own, until its next demand: all or none
  block_destination_ptr destination = {}; // with `open`: where its blocks are sent; null: nowhere
  // With `open`: so many first tokens are those of this sequence, whose blocks it is given if less is cached.
  sequence_id like = {};
  std::int32_t alike = 0;
};

/// How much of a prompt is cached, before more of it is fetched.
struct block_lookup {
  sequence_id sequence;
  token_list tokens;
  prefix_salt salt = 0;
};

/// Blocks of a chain that come from outside, to be cached.
struct block_arrival {
  token_list tokens; // the chain from its start, perhaps longer
  prefix_salt salt = 0;
  std::int32_t first = 0; // place in the chain of the first of these
  std::vector<block_image_ptr> images;
  std::uint64_t request = 0;                // another replica's, that sends them; 0: they come from the disk
  std::vector<block_image_ptr> states = {}; // behind blocks of the chain, up to these
};

/// Whether it currently pays to swap evicted blocks out to host memory, and to swap them back in.
struct swap_decision {
  bool swap_out = false, swap_in = false;
};

/// Served in this order: commits, forks, releases, what is to be kept, arrivals, lookups, demands.
struct block_request {
  std::vector<block_commit> commits;
  std::vector<block_fork> forks;
  std::vector<sequence_id> releases;
  std::vector<block_arrival> arrivals = {};
  std::vector<block_lookup> lookups = {};
  std::vector<block_demand> demands; // most important first
  swap_decision swap;

  bool empty() const {
    return commits.empty() && forks.empty() && releases.empty() && arrivals.empty() && lookups.empty() &&
      demands.empty();
  }
};

// -- block manager → scheduler ----------------------------------------------------------------------------------------

/// The state of a sequence at a position is to be stored in a slot, as a snapshot.
struct snapshot_grant {
  std::int32_t position = 0;
  std::int32_t slot = 0;
};

struct block_answer {
  sequence_id sequence;
  std::int32_t first_position = 0; // of the rows granted; after an `open`, the length of the cached prefix
  std::int32_t rows = 0;           // granted; 0: refused
  std::int32_t first_block = 0;    // start of its block table in `tables`
  std::int32_t blocks = 0;
  std::int32_t spare = 0;                 // of these, the last ones, as demanded
  std::int32_t committed = 0;             // after an `open`: positions that are committed, of the cached prefix
  std::int32_t snapshot = -1;             // after an `open`: the slot with the state behind its cached prefix; or none
  std::vector<snapshot_grant> saves = {}; // within the rows granted, ascending
};

/// A whole block, K and V of all layers, to be moved before a step. Moves must run in the order listed: within one step
/// a block may be swapped out, then swapped into or copied to, and a host slot read, then reused.
struct block_move {
  enum class kind : std::uint8_t {
    copy,      // from block to block (copy-on-write)
    swap_out,  // from block to host slot
    swap_in,   // from host slot to block
    save,      // from block to image, or from a snapshot of states to an image of one
    load,      // the other way
    copy_state // from state to state: forks, and snapshots that a cached prefix ends with
  };
  kind what = kind::copy;
  std::int32_t from = 0, to = 0;
  block_image_ptr image = {};
  block_destination_ptr destination = {}; // of what is saved for another replica; null: for the disk
};

/// The answer to a lookup.
struct block_found {
  std::int32_t blocks = 0;  // of the chain that are cached
  block_key key;            // of the last one of those reached
  std::int32_t reached = 0; // of these, up to the last snapshot of states; all without recurrent layers
};

struct block_grant {
  std::vector<block_answer> answers; // one per demand, in order
  std::vector<std::int32_t> tables;  // of the sequences with rows > 0, concatenated
  std::vector<block_move> moves;     // to be done before the step, in order
  std::uint32_t acquired = 0;        // blocks given to sequences, beside those that they had or found cached
  std::uint32_t evicted = 0;         // of these, taken from cached content
  std::int32_t free_blocks = 0, cached_blocks = 0; // left after it; cached: unreferenced
  std::vector<block_found> found = {};             // one per lookup, in order
  bool unsaved = false;                            // more content could be saved, once there are images
  bool unsent = false;                             // likewise, for other replicas
  std::vector<block_destination_ptr> offers = {};  // of sequences that were opened: whoever is to get them, is asked
};

// -- scheduler → executor → sampler -----------------------------------------------------------------------------------

/// The transcript of one sequence, from which its sampling state is (re)built.
struct sampling_start {
  request_ptr asked;
  std::vector<token_id> emitted;
  float mirostat_mu = 0; // after the last of them
};

/// The guess that each guess follows; -1: the last known token.
using guess_parents = std::shared_ptr<const std::vector<std::int32_t>>;

/// The next tokens of a sequence: one to be sampled from a row of logits and, as long as each equals the guess that the
/// following row holds, more from the rows that follow. Several demands may share a row (n > 1).
struct sample_demand {
  sequence_id sequence;
  std::int32_t slot = 0;
  std::int32_t logit_row = 0;                  // index into step_plan::logit_rows
  std::shared_ptr<const sampling_start> start; // on the first sample since the sequence was (re)admitted; else null
  std::int32_t guesses = 0;                    // rows that follow, each the guess of the token sampled before
  guess_parents parents = {};                  // of a tree of guesses; null: each follows the one before it
  bool constrained = false;                    // the sequence follows a constraint
  bool predicted = false;                      // the guesses are of the request's prediction
};

/// The sequences of a group, judged together.
struct group_demand {
  std::uint64_t request = 0;
  std::vector<std::int32_t> logit_rows;        // indices into step_plan::logit_rows, in the strategy's order
  std::shared_ptr<const sampling_start> start; // the first time, when the group is its prompt; else null
};

/// Log-probabilities of prompt tokens: that at `position + i` follows row `logit_row + i`.
struct score_demand {
  std::uint64_t request = 0;
  std::int32_t position = 0, logit_row = 0, tokens = 0;
  std::int32_t top = 0; // likeliest tokens to be named with each
  token_list prompt;
};

/// The hidden states of prompt tokens, from which an embedding is made: that at `position + i` is row `hidden_row + i`.
struct embed_demand {
  std::uint64_t request = 0;
  std::int32_t position = 0, hidden_row = 0, tokens = 0;
  pooling how = pooling::none;
  bool complete = false; // no more follow
};

/// The hidden states of all rows of a sequence, for the guesser: that at `position + i` is row `hidden_row + i`.
struct guesser_rows {
  sequence_id sequence;
  std::int32_t position = 0, hidden_row = 0, rows = 0;
  std::int32_t known = 0; // rows from here on are guesses
};

/// Stands for a token that is unknown when the step is planned: the one last sampled for `slot`.
constexpr token_id placeholder(std::int32_t slot) { return -1 - slot; }
constexpr std::int32_t slot_of(token_id placeholder) { return -1 - placeholder; }

struct step_plan {
  std::uint64_t step = 0;
  std::uint64_t after_tokens_of = 0; // the step whose samples fill the placeholders; 0: no placeholders
  std::vector<token_id> tokens;      // [rows], known ids or placeholders
  std::vector<kernels::sequence_rows> sequences;
  std::vector<std::int32_t> block_tables;
  std::vector<block_move> moves;               // in order, before anything else
  std::vector<kernels::sequence_state> states; // of `sequences`, by their scheduling slots; for recurrent layers
  std::vector<kernels::state_save> saves;      // likewise
  std::vector<std::int32_t> logit_rows;        // rows of `tokens` whose logits are wanted
  std::vector<std::int32_t> hidden_rows;       // rows of `tokens` whose hidden states are wanted
  std::vector<featured_sequence> featured;     // in the order of `sequences`
  std::vector<sample_demand> samples;
  std::vector<group_demand> groups;
  std::vector<score_demand> scores;
  std::vector<embed_demand> embeds;
  std::vector<guesser_rows> for_guesser;
  std::vector<sequence_id> ended; // since the last plan: their sampling state, or that of their group, can be dropped

  std::vector<kernels::token_copy> common = {}; // of trees of guesses: see kernels::batch

  /// The token in the row of the i-th wanted logits.
  token_id token_of(std::int32_t logit_row) const {
    return tokens[static_cast<std::size_t>(logit_rows[static_cast<std::size_t>(logit_row)])];
  }
};

/// Rows of logits that a step may want beyond one for each sequence: for guesses and the tokens of prompts.
inline constexpr std::int32_t extra_logit_rows = 64;

// -- sampler → scheduler ----------------------------------------------------------------------------------------------

struct sequence_sample {
  sequence_id sequence;
  std::int32_t slot = 0;
  sampled_token token;
  bool more =
    false; // the next sample is of the same sequence: it was a right guess, or a constraint forces the next token
};

/// How right a sequence's guesses were.
struct judged_guesses {
  sequence_id sequence;
  std::int32_t guesses = 0, accepted = 0;
  std::vector<token_id> choices; // sampled after the last known token and after each guess, also the wrong ones
  std::int32_t last = 0;         // row of the last right guess, counted from that of the last known token
  bool predicted = false;        // they are of the request's prediction
};

struct group_outcome {
  std::uint64_t request = 0;
  std::vector<group_child> children;      // none: the group has ended
  std::optional<sampled_token> told = {}; // for the client: the next token of the answer
};

/// Log-probabilities of a request's prompt tokens, tokens[0] at `position`.
struct prompt_scores {
  std::uint64_t request = 0;
  std::int32_t position = 0;
  std::vector<sampled_token> tokens;
};

/// The embedding of a request's prompt, as pooled.
struct prompt_embedding {
  std::uint64_t request = 0;
  std::vector<float> values; // [hidden]
};

/// The hidden states that the guesser wanted.
struct guesser_states {
  sequence_id sequence;
  state_rows states;
  std::int32_t known = 0; // rows from here on are guesses
};

struct failed_sample {
  sequence_id sequence;
  error why;
};

struct step_result {
  std::uint64_t step = 0; // 0: a late result, of sequences that earlier steps deferred
  std::vector<sequence_sample> sampled;
  std::vector<judged_guesses> judged;
  std::vector<group_outcome> groups;
  std::vector<failed_sample> failed; // these sequences, or their groups, end
  // Sequences, or groups (by their first sequence), whose masks are not made yet, or which wait for a judge: their
  // tokens follow in a late result.
  std::vector<sequence_id> deferred;
  std::vector<sequence_id> at_judge = {}; // groups that wait for a judge from now on
  // Results for clients:
  std::vector<std::pair<std::uint64_t, std::vector<hypothesis>>> hypotheses; // of requests whose group has ended
  std::vector<prompt_scores> scores;
  std::vector<prompt_embedding> embeddings;
  std::vector<guesser_states> for_guesser = {}; // for the scheduler
  double ms = 0;                                // that the step took; 0: not measured
  std::vector<double> stage_ms = {};            // of these, each stage; empty: there is one
  std::string news = {};                        // a line for the log; mostly empty

  /// Whether a late result has anything to tell.
  bool goes_on() const {
    return !sampled.empty() || !groups.empty() || !failed.empty() || !at_judge.empty() || !hypotheses.empty();
  }
};

} // namespace troupe
