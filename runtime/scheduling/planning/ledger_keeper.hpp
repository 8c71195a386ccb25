// Tells the ledgers of a scheduler's requests what these do, step by step. A request's state is what the step under way
// does for it; what is planned behind that one counts once it is under way. A request with several sequences is as far as
// the one that is furthest. Owned by the scheduler actor; single-threaded.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/scheduling/step_record.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

class ledger_keeper {
public:
  using time_point = request_ledger::time_point;
  /// Where a request stands, while no step does anything for it; nothing: it is not known any more.
  using standing_of = std::function<std::optional<wait_cause>(std::uint64_t request)>;

  /// A request comes, or comes to the queue after it was held.
  void joined(const admission& its, time_point now);
  /// It is held until what is missing of its prompt is read from a disk.
  void held(const admission& its, time_point now);
  void left(std::uint64_t request) { known_.erase(request); }

  /// It stands elsewhere, and no step is why: it was paused, or goes on.
  void stands(std::uint64_t request, std::optional<wait_cause> where, time_point now);

  /// A grant for the step that is being planned.
  void granted(const block_grant& grant);
  /// The step has no rows, so there is no plan.
  void dropped() { granted_.clear(); }
  /// The plan is made. `running`: what each sequence that runs would do without rows in this step.
  void planned(const step_plan& plan, const step_cost& cost, std::span<const step_lane> running,
               const standing_of& where, time_point now);
  /// A step has ended.
  void finished(const step_result& result, time_point now);

private:
  struct known {
    std::shared_ptr<request_ledger> ledger;
    wait_cause came = wait_cause::queue; // what its queue is called
    bool paused = false;                 // whatever steps still do for it
  };
  struct entry {
    std::uint64_t request = 0;
    wait_state state;
  };
  struct step {
    std::uint64_t number = 0;
    std::vector<entry> entries = {}; // ascending
  };
  struct granted_rows {
    sequence_id sequence;
    std::int32_t position = 0, rows = 0;
  };
  struct doing {
    std::uint64_t request = 0;
    wait_cause what = wait_cause::queue;
    step_shape prompt = {}; // rows of its own prompt
  };

  std::vector<doing> doings(const step_plan& plan, std::span<const step_lane> running, const standing_of& where) const;
  void begin(const step& what, time_point now);
  void enter(std::uint64_t request, wait_state state, time_point now);

  std::map<std::uint64_t, known> known_;
  std::vector<granted_rows> granted_; // of the step that is being planned
  std::deque<step> in_flight_;
  std::vector<std::uint64_t> active_; // requests of the last plan, ascending
};

} // namespace troupe
