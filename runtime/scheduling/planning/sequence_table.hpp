// Which sequences there are, and where each stands: waiting, running in a slot, or paused. Owns sequences, groups,
// queues and slots, and keeps what a change of place means for others until they ask: forks and releases for the block
// manager, sequences that have ended for the sampler, requests that have failed for their clients. Decides nothing.
// Owned by the scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/cost/load_report.hpp"
#include "runtime/scheduling/planning/fair_queue.hpp"
#include "runtime/scheduling/planning/scheduled_sequence.hpp"
#include "runtime/scheduling/scheduler_counters.hpp"
#include "runtime/scheduling/step_record.hpp"
#include "runtime/support/error.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <ranges>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe {

class step_guesses;

class sequence_table {
public:
  /// `guesses` hears who runs. `recurrent`: slots have states.
  sequence_table(std::int32_t slots, step_guesses& guesses, bool recurrent = false);

  // -- who there is ---------------------------------------------------------------------------------------------------

  scheduled_sequence* find(sequence_id id);
  const scheduled_sequence* find(sequence_id id) const;
  scheduled_sequence& at(sequence_id id) { return sequences_.at(id); }
  const scheduled_sequence& at(sequence_id id) const { return sequences_.at(id); }

  /// Null for a request whose sequences are not judged together.
  sequence_group* find_group(std::uint64_t request);
  const sequence_group* find_group(std::uint64_t request) const;
  sequence_group& group_of(const scheduled_sequence& s) { return groups_.at(s.id.request); }
  const sequence_group& group_of(const scheduled_sequence& s) const { return groups_.at(s.id.request); }

  /// In scheduling order.
  auto running() {
    return running_ | std::views::values |
      std::views::transform([](scheduled_sequence* s) -> scheduled_sequence& { return *s; });
  }
  auto running() const {
    return running_ | std::views::values |
      std::views::transform([](const scheduled_sequence* s) -> const scheduled_sequence& { return *s; });
  }
  bool idle() const { return running_.empty(); }
  std::int32_t running_count() const { return static_cast<std::int32_t>(running_.size()); }
  const fair_queue& waiting() const { return waiting_; }
  std::int32_t free_slots() const { return static_cast<std::int32_t>(free_slots_.size()); }
  void count(scheduler_counters& into) const;
  std::vector<step_lane> idle_lanes(std::size_t most) const;
  /// The same of those that run.
  std::vector<step_lane> running_lanes() const;
  /// Where the furthest sequence of a request stands; nothing: it has none, or waits for its end.
  std::optional<wait_cause> standing_of(std::uint64_t request) const;
  void add_load(load_report& to) const;
  /// What is left of those that run, as far as it is expected.
  void add_lengths(load_report& to) const;

  /// Grows whenever something has happened that may allow, or forbid, to plan a step.
  std::uint64_t version() const { return version_; }
  void changed() { ++version_; }

  // -- how they come and go -------------------------------------------------------------------------------------------

  /// Adds the group of a request whose sequences are judged together, before they are added.
  sequence_group& add_group(std::uint64_t request) { return groups_[request]; }

  /// To the queue or, with a slot, to those that run.
  scheduled_sequence& add(scheduled_sequence s);

  /// Free slots without which one that waits cannot start. The first of a group takes them for all: parts of groups
  /// would keep each other from those that they still lack.
  std::int32_t slots_needed(const scheduled_sequence& s) const;
  /// Sequences that wait for blocks alone: others of their groups run.
  std::vector<sequence_id> with_reserved_slots() const;
  /// A sequence that waits gets a slot.
  void admit(scheduled_sequence& s);
  /// What has waited for `long_wait` steps gets the priority of the first that runs, for good. Call it now and then.
  void age(std::uint64_t step, std::uint64_t long_wait);
  /// More slots for a sequence that was just admitted, for those that will be forked from it.
  void reserve_slots(scheduled_sequence& s, std::int32_t slots);
  /// Back to the queue, to be computed again from the transcript. Its blocks go back with `request`.
  void suspend(scheduled_sequence& s, block_request& request);
  void suspend(sequence_group& g, block_request& request);

  /// Ends a sequence in any state. Unknown ones are ignored.
  void end(sequence_id id);
  void cancel(std::uint64_t request);
  /// Cancels a request that can never run.
  void fail(std::uint64_t request, error why);
  /// Returns requests which were dropped because more than `most` sequences are paused: those paused longest, of the
  /// client that has most.
  std::vector<std::uint64_t> pause(std::uint64_t request, bool paused, std::size_t most);

  /// A member of a group does not go on: its slot is spare.
  void spare(scheduled_sequence& member, sequence_group& g);
  /// It is forgotten, after forks of it.
  void drop(scheduled_sequence& member);
  /// A new member of a group, which begins with all that `parent` has, and in a spare slot if that one runs.
  sequence_id fork(const scheduled_sequence& parent, sequence_group& g);
  /// The same with another transcript: it has what `parent` has as far as both begin alike, but for its last token. Not
  /// of recurrent models, whose states cannot be taken back.
  sequence_id fork(const scheduled_sequence& parent, sequence_group& g, std::vector<token_id> tokens);
  /// When a group is admitted again, its first member brings the slots of sequences that may be forked.
  void settle(sequence_group& g);

  // -- what others are to be told -------------------------------------------------------------------------------------

  /// Tells the block manager of tokens that are known and computed.
  void commit(block_request& request);
  /// Another sequence starts with all blocks and the state of `from`; both have slots. `after_step`: the state behind
  /// the step that is planned now.
  void fork_blocks(const scheduled_sequence& from, const scheduled_sequence& to, bool after_step);
  void release_blocks(sequence_id id) { later_.releases.push_back(id); }
  /// For the next block request: forks, and commits and releases of sequences that have ended.
  const block_request& later() const { return later_; }
  /// Members of its group were forked since the last one: the block manager does not know yet that they have blocks.
  bool forks_later(std::uint64_t request) const;
  block_request take_later() { return std::exchange(later_, {}); }
  /// A step is begun: slots that ended sequences had in the last one are free, and siblings forked from its rows can
  /// get their states.
  void begin_step();
  /// States of sequences that were forked, and lines that are kept: copies of what is computed before the step that is
  /// planned now.
  std::vector<block_move> take_copies() { return std::exchange(copies_, {}); }
  /// A tree's line was right: its blocks are copied to the sequence's own before any are used for something else.
  void keep(std::span<const kernels::block_copy> line);
  /// Sequences of which the sampler has a state that it can drop.
  std::vector<sequence_id> take_ended() { return std::exchange(ended_, {}); }
  std::vector<std::pair<std::uint64_t, error>> take_failed() { return std::exchange(failed_, {}); }

private:
  wait_cause standing(const scheduled_sequence& s) const;
  bool one_runs(const sequence_group& g) const;

  using key = std::tuple<int, std::uint64_t, sequence_id>; // -priority, arrival, id: scheduling order
  using queue = std::map<key, scheduled_sequence*>;

  static key order(const scheduled_sequence& s) { return {-s.priority, s.asked->arrival, s.id}; }
  static fair_queue::place place_of(const scheduled_sequence& s) {
    return {s.priority, s.asked->arrival, s.id, s.asked->preference};
  }
  static void commit(scheduled_sequence& s, block_request& request);
  std::uint64_t paused_of_largest() const;
  void enqueue(scheduled_sequence& s);
  void dequeue(const scheduled_sequence& s);
  void leave(scheduled_sequence& s, block_request& request);
  std::int32_t take_slot();
  void free(std::vector<std::int32_t>& slots);
  static void become_member(scheduled_sequence& forked, sequence_group& g);

  step_guesses& guesses_;
  std::map<sequence_id, scheduled_sequence> sequences_;
  std::map<std::uint64_t, sequence_group> groups_; // by request
  queue running_, paused_;                         // paused_: those that do not run
  fair_queue waiting_;
  std::map<std::uint64_t, std::uint64_t> pauses_; // paused_since -> request
  std::uint64_t last_pause_ = 0;
  std::size_t paused_count_ = 0; // sequences, running ones included
  std::vector<std::int32_t> free_slots_;
  std::uint64_t version_ = 0;

  const bool recurrent_;
  std::vector<block_move> copies_, later_copies_;
  std::vector<std::int32_t> resting_slots_; // whose states the step that is planned may still use
  block_request later_;
  std::vector<sequence_id> ended_;
  std::vector<std::pair<std::uint64_t, error>> failed_;
};

} // namespace troupe
