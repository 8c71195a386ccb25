// One replica: the actors that run a model together, spawned, watched and spawned again as one. A part of the engine
// actor, on whose thread it is used; the engine passes it the ends of actors, and decides when it starts.
#pragma once

#include "actors/child.hpp"
#include "actors/faults.hpp"
#include "actors/messages.hpp"
#include "runtime/engine/engine_snapshot.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/engine/restart_policy.hpp"

#include <caf/actor_addr.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class replica {
public:
  /// The actors that others send to.
  struct workers {
    kv_block_manager_actor blocks;
    sampler_actor sampler;
    executor_actor executor; // of the first stage
    executor_actor last;     // of the last one, which passes images on
    scheduler_actor scheduler;
    constraint_compiler_actor constraints;
  };

  replica(engine_actor::pointer engine, int number, model_replica what);
  replica(const replica&) = delete;
  replica& operator=(const replica&) = delete;
  ~replica() { end(); }

  int number() const { return number_; }
  bool has_failed() const { return failed_; }

  /// Asks its actors what they have counted and calls `then` once with the sums over all their lives. What does not
  /// answer in time is as when it answered last.
  void count(const std::function<void(const replica_stats&)>& then);

  /// Asks for its blocks and calls `then` once, without them if they do not answer in time.
  void look(const std::function<void(replica_snapshot)>& then);

  /// What became of its requests, where it has a role.
  move_counters& moves() { return seen_.moves; }
  bool has_role() const { return what_.plan.role != replica_role::any; }
  void count_role_change() { ++seen_.role_changes; }

  /// Blocks of its requests may be sent there. Both run.
  void know(const replica& other);

  /// Whether its scheduler is to send a record of each step, also after the next start.
  void watch_steps(bool watched);

  /// Who values the answers of its searches, also after the next start; null: nobody.
  void judge_by(const judge_actor& judge);

  /// Under which its scheduler reports loads.
  std::uint64_t life() const { return life_; }

  /// Null while it does not run.
  const workers* running() const { return workers_ ? &*workers_ : nullptr; }

  /// It is not started again.
  void give_up() { failed_ = true; }

  /// It could not be started; it will be tried again (take_restart). Returns why it will not, if so.
  std::optional<error> put_off(const error& why);

  /// What made it fail is known to be gone: it is worth a start at once.
  void forgive() { policy_.forgive(); }

  /// Whether none of its actors is alive.
  bool has_ended() const { return children_.empty(); }

  /// Spawns and monitors its actors. A `life` of 0: its scheduler reports no loads. Throws if it cannot, and ends those
  /// that it has spawned.
  void start(std::uint64_t life);

  /// Ends its actors. Requests notice the scheduler's end.
  void end() noexcept;

  /// Whether one of its actors had this address; it has ended.
  bool lose(const caf::actor_addr& actor) { return child::remove(children_, actor); }

  /// Ends the other actors: without one of them they are useless. Returns why it cannot be started again, if so.
  std::optional<error> fail(const fault& f);

  struct pending_restart {
    std::string line; // for a person, when it is started again
    std::string why;
    std::chrono::milliseconds wait{};
  };
  /// After a failure, once all its actors have ended, whose memory is what the next ones will take: that it is to be
  /// started again.
  std::optional<pending_restart> take_restart();

private:
  bool never_ran_for(std::chrono::milliseconds wait) const;
  workers spawn(std::uint64_t life);

  template <class Handle, class Counters>
  void ask(const Handle& who, const former_lives<Counters>& former, Counters replica_stats::*what,
           const std::function<void()>& answered);

  engine_actor::pointer engine_;
  int number_;
  model_replica what_;
  judge_actor judge_;
  std::optional<workers> workers_;
  std::vector<child> children_;
  restart_policy policy_;
  std::chrono::steady_clock::time_point started_{};
  std::uint64_t life_ = 0;
  bool steps_watched_ = false;
  replica_stats seen_; // as its actors answered last; `restarts` is true
  std::shared_ptr<former_lives<scheduler_counters>> former_schedulers_ =
    std::make_shared<former_lives<scheduler_counters>>();
  std::shared_ptr<former_lives<block_counters>> former_blocks_ = std::make_shared<former_lives<block_counters>>();
  std::optional<pending_restart> restarting_;
  bool has_run_ = false; // once, as it seems
  bool failed_ = false;  // and is not started again
};

} // namespace troupe
