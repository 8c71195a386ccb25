// The replicas of a model: which of them runs, which one a request goes to, when one that failed is started again, and
// what a person is told of that. A part of the engine actor, on whose thread it is used; the engine passes it the ends
// of actors, and tells requests and its listener what came of them.
#pragma once

#include "actors/replica.hpp"
#include "runtime/scheduling/routing/router.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class replica_set {
public:
  explicit replica_set(engine_actor::pointer engine) : engine_(engine) {}

  /// Makes the replicas of a model; none is started yet.
  void make(const loaded_model_ptr& model);

  // -- starts and failures --------------------------------------------------------------------------------------------

  /// What came of a start or a failure, for others to hear.
  struct change {
    bool started = false;             // requests may be sent to it
    bool told = false;                // the status has changed,
    std::string line = {};            // for this reason
    std::optional<error> failed = {}; // all have, for good
  };

  int size() const { return static_cast<int>(replicas_.size()); }

  /// `alone`: if none is alone yet, this one takes nobody but requests that are tried.
  change start_first(int number, bool alone) { return start(at(number), {}, alone); }

  /// Starts a replica again whose restart_due has come.
  change start_again(int number, bool alone);

  /// The replica of which this actor was, which has ended; null: it was of none.
  replica* lose(const caf::actor_addr& actor);

  /// It takes no more requests: one of its actors has failed.
  void close(const replica& failed);

  /// Ends and restarts a closed one, or gives it up.
  change fail(replica& failed, const fault& f, bool alone);

  /// What made some fail is known to be gone.
  void forgive_all();

  /// Takes nobody but who is tried; nothing: none does.
  std::optional<int> alone() const { return alone_; }

  /// It takes everybody again.
  void end_alone();

  // -- requests -------------------------------------------------------------------------------------------------------

  bool has_router() const { return replicas_.size() > 1; }

  /// Null if none runs.
  const replica* running() const;

  /// Whether one runs that takes everybody.
  bool is_open() const;

  /// Adds where a request goes to the answer to its admission; false: none runs that takes it. `asked`: null if there
  /// is no router.
  bool choose(const route_query* asked, admit_reply& reply);

  /// Whether a request goes on in another replica, which is added to the answer. `was`: its number.
  bool move(int from, int to, std::uint64_t was, const route_query& asked, admit_reply& reply);

  /// A request has ended, or left.
  void end(std::uint64_t number) { router_.end(number); }

  void take(const load_report& report) { router_.take(report); }

  /// Has a replica take the other role, if that is due; the line says so. Call it when loads have changed.
  std::optional<std::string> yield_roles(std::chrono::steady_clock::time_point now);

  length_model& lengths() { return router_.lengths(); }

  // -- what all are told, and asked -----------------------------------------------------------------------------------

  void judge_by(const judge_actor& judge);
  void watch_steps(bool watched);

  /// Calls `then` once, with what each has, by its number.
  void count(const std::function<void(std::vector<replica_stats>)>& then);
  void look(const std::function<void(std::vector<replica_snapshot>)>& then);

  /// Why there will be no replica for a while; empty: there is one, or soon.
  std::string why_unable() const;

  /// Why not all of them serve, each reason by itself.
  std::vector<std::string> troubles() const;

  // -- the end --------------------------------------------------------------------------------------------------------

  /// Whether what is kept on a disk is written, or has had its time; else `then` is called when that may have changed.
  bool is_flushed(const std::function<void()>& then);

  /// Ends all; whether all have ended.
  bool end();

private:
  replica& at(int number) { return *replicas_.at(static_cast<std::size_t>(number)); }
  change start(replica& which, std::string line, bool alone);
  change restart_when_ended(replica& which, bool alone);
  change give_up(const replica& which, const error& why);
  void open_route(const replica& to);
  void introduce(replica& started);
  void admit_to(const replica& to, std::uint64_t number, admit_reply& reply) const;

  engine_actor::pointer engine_;
  loaded_model_ptr model_;
  std::vector<std::unique_ptr<replica>> replicas_;
  router router_;                                    // of several
  std::uint64_t lives_ = 0;                          // of all of them
  std::uint64_t last_number_ = 0;                    // of an admission
  std::map<int, replica::pending_restart> restarts_; // that wait, by replica
  std::string lost_;                                 // why fewer serve than there were
  std::optional<int> alone_;
  bool flush_begun_ = false;
  int flushing_ = 0;
};

} // namespace troupe
