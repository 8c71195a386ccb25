// Which sequences there are, and where each stands: waiting, running in a slot, or paused. Owns sequences, groups,
// queues and slots, and notes what a change of place means for others. Decides nothing.
// Owned by the scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/planning/sequence_notices.hpp"
#include "runtime/scheduling/planning/sequence_queues.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace troupe {

class step_guesses;

class sequence_table {
  static auto* found_in(auto& map, const auto& key) {
    const auto found = map.find(key);
    return found == map.end() ? nullptr : &found->second;
  }

public:
  /// `guesses` hears who runs. `recurrent`: slots have states.
  sequence_table(std::int32_t slots, step_guesses& guesses, bool recurrent = false);

  // -- who there is ---------------------------------------------------------------------------------------------------

  scheduled_sequence* find(sequence_id id) { return found_in(sequences_, id); }
  const scheduled_sequence* find(sequence_id id) const { return found_in(sequences_, id); }
  scheduled_sequence& at(sequence_id id) { return sequences_.at(id); }
  const scheduled_sequence& at(sequence_id id) const { return sequences_.at(id); }

  /// Null for a request whose sequences are not judged together.
  sequence_group* find_group(std::uint64_t request) { return found_in(groups_, request); }
  const sequence_group* find_group(std::uint64_t request) const { return found_in(groups_, request); }
  sequence_group& group_of(const scheduled_sequence& s) { return groups_.at(s.id.request); }
  const sequence_group& group_of(const scheduled_sequence& s) const { return groups_.at(s.id.request); }

  const std::map<sequence_id, scheduled_sequence>& all() const { return sequences_; }
  /// In scheduling order.
  auto running() { return queues_.running(); }
  auto running() const { return queues_.running(); }
  bool idle() const { return running_count() == 0; }
  std::int32_t running_count() const { return queues_.running_count(); }
  const fair_queue& waiting() const { return queues_.waiting(); }
  std::int32_t free_slots() const { return static_cast<std::int32_t>(free_slots_.size()); }

  /// Grows whenever something has happened that may allow, or forbid, to plan a step.
  std::uint64_t version() const { return version_; }
  void changed() { ++version_; }

  /// What others are to be told.
  sequence_notices& notices() { return notices_; }
  const sequence_notices& notices() const { return notices_; }

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
  /// A new member with another transcript: it has what `parent` has as far as both begin alike, but for its last token.
  /// Not for recurrent models, whose states cannot be taken back.
  sequence_id fork(const scheduled_sequence& parent, sequence_group& g, std::vector<token_id> tokens);
  /// When a group is admitted again, its first member brings the slots of sequences that may be forked.
  void settle(sequence_group& g);

  // -- a step ---------------------------------------------------------------------------------------------------------

  /// Tells the block manager of tokens that are known and computed.
  void commit(block_request& request);
  /// A step is begun: slots that ended sequences had in the last one are free, and siblings forked from its rows can
  /// get their states.
  void begin_step();

private:
  bool one_runs(const sequence_group& g) const;
  std::uint64_t paused_of_largest() const;
  void leave(scheduled_sequence& s, block_request* now);
  std::int32_t take_slot();
  void free(std::vector<std::int32_t>& slots);
  static void become_member(scheduled_sequence& forked, sequence_group& g);

  step_guesses& guesses_;
  std::map<sequence_id, scheduled_sequence> sequences_;
  std::map<std::uint64_t, sequence_group> groups_; // by request
  sequence_queues queues_;
  std::map<std::uint64_t, std::uint64_t> pauses_; // paused_since -> request
  std::uint64_t last_pause_ = 0;
  std::vector<std::int32_t> free_slots_;
  std::uint64_t version_ = 0;

  const bool recurrent_;
  std::vector<std::int32_t> resting_slots_; // whose states the step that is planned may still use
  sequence_notices notices_;
};

} // namespace troupe
