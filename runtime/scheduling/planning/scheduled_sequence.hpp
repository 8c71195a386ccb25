// What the scheduler knows of one sequence, and of the sequences that are judged together. Plain values, kept by
// sequence_table; row_grants and result_booking write how far a sequence is, the table itself where it stands.
#pragma once

#include "kernels/tree_lines.hpp"
#include "runtime/scheduling/lengths/expected_answer.hpp"
#include "runtime/scheduling/request.hpp"

#include <limits>
#include <memory>
#include <vector>

namespace troupe {

struct scheduled_sequence {
  static constexpr auto all = std::numeric_limits<std::int32_t>::max();

  sequence_id id;
  request_ptr asked;
  bool twin = false;                                    // behind the negative prompt
  int priority = 0;                                     // as asked, until it has waited for long
  bool whole = false;                                   // computed in one step, and shares no blocks
  std::int32_t last_row = 0;                            // rows are planned for positions below this
  std::int32_t expected_cached = 0;                     // of its tokens, while it waits
  int moves_to = -1;                                    // the replica that its blocks are sent to; -1: none
  std::shared_ptr<const expected_answer> expected = {}; // of its answer; null: nothing is expected

  // How far it is.
  std::vector<token_id> tokens;                         // known ones: prompt and sampled
  float mirostat_mu = 0;                                // after the last known token
  std::int32_t planned = 0;                             // positions computed or in flight
  std::int32_t committed = 0;                           // tokens that the block manager may index
  std::int32_t samples_in_flight = 0;                   // steps that will sample it
  std::uint64_t sampled_in = 0;                         // the last of these
  std::int32_t guesses = 0;                             // in flight, in the rows behind the known tokens
  std::shared_ptr<const kernels::tree_lines> tree = {}; // of these, if they branch
  std::uint64_t right_guesses = 0;                      // of the last tree, a bit for each, until it has rows again
  // Prompt tokens up to this position have their log-probabilities, or will; of embeddings, their hidden states.
  std::int32_t scored = all;
  bool deferred = false;      // its sample is late
  bool announced = false;     // its request was told that it started
  bool sampler_knows = false; // its sampling state was sent since its admission
  int losses = 0;             // times that it lost its blocks
  std::int32_t rotation = 0;  // while running: number of borders that it was beyond

  // Where it stands.
  std::int32_t slot = -1;                  // while running
  std::int32_t microbatch = 0;             // that it decodes in; there may be fewer now (row_rules::in_turn)
  std::uint64_t paused_since = 0;          // number of the pause() that paused it; 0: not paused
  std::uint64_t waits_since = 0;           // about the step since which it waits; 0: it does not, or not for long
  std::int32_t siblings = 0;               // to be forked when the prompt is computed (n > 1)
  std::vector<std::int32_t> sibling_slots; // of the siblings, while this one runs; those without one will wait

  const std::vector<token_id>& prompt() const { return twin ? asked->negative_prompt : asked->prompt; }
  prefix_salt salt() const { return asked->features ? asked->features->salt : 0; }
  bool running() const { return slot >= 0; }
  bool decodes() const { return planned >= known() - 1; }
  bool paused() const { return paused_since != 0; }
  bool grouped() const { return asked->sampling.grouped(); }
  bool embeds() const { return asked->embed != pooling::none; }
  /// Its embedding is made, or will be by what is in flight: it waits for its request to end.
  bool embedded() const { return embeds() && scored == all; }
  /// Log-probabilities of its prompt are wanted still.
  bool scoring() const { return scored < prompt_tokens() && !embeds(); }
  /// Whether this one gives its slot to the other, which waits: others' priorities count, and one's own wishes.
  bool yields_to(const scheduled_sequence& other) const {
    return priority < other.priority ||
      (priority == other.priority && asked->client == other.asked->client &&
       asked->preference < other.asked->preference);
  }
  /// Loses its blocks and slots before all others.
  bool gives_way() const { return paused() || embedded(); }
  bool guesses_help() const { return !grouped() && !embeds(); }
  std::int32_t known() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t prompt_tokens() const { return static_cast<std::int32_t>(prompt().size()); }
  std::int32_t answered() const { return known() - prompt_tokens(); }
  /// Tokens that its answer is expected to take still.
  double left() const { return expected ? expected->length.mean_left(answered()) : 0; }
};

/// Its request keeps it.
inline token_list prompt_of(const scheduled_sequence& s) { return {s.asked, &s.prompt()}; }

/// The sequences of a request that are judged together. They are preempted together, and their last rows planned
/// together.
struct sequence_group {
  std::vector<sequence_id> members; // in the strategy's order
  // The slots of members that wait, beside others that run, and of those still to be forked.
  std::vector<std::int32_t> spare_slots;
  std::uint32_t next_index = 1;
  int losses = 0;        // of its blocks while it was the oldest, since it was last judged
  bool judging = false;  // its rows are in flight
  bool deferred = false; // its outcome is late
  bool at_judge = false; // and waits for a judge
  bool sampler_knows = false;
  int judged = 0; // times since it was admitted

  /// It has lost its blocks so often that it comes before all others. A constant of this project.
  bool urgent() const { return losses >= 4; }
};

} // namespace troupe
