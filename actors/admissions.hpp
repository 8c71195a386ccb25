// The requests of an engine: which of them waits for a replica and which one runs where, whose time is over, and who is
// tried alone because replicas seem to fail at it (runtime/engine/suspects.hpp). A part of the engine actor, on whose
// thread it is used; it answers requests, and the engine passes it what they ask.
#pragma once

#include "actors/messages/admission.hpp"
#include "actors/replica_set.hpp"
#include "runtime/engine/deadlines.hpp"
#include "runtime/engine/suspects.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class admissions {
public:
  admissions(engine_actor::pointer engine, replica_set& replicas) : engine_(engine), replicas_(replicas) {}

  /// Requests are admitted from now on.
  void open(const loaded_model_ptr& model) { model_ = model; }

  /// All who ask from now on are refused for this reason; `all`: those who wait are, too.
  void refuse_all(const error& why, bool all);

  /// It goes to a replica, waits for one, or is refused.
  void admit(const admission_wanted& wanted);

  /// Its blocks are in the other replica: it goes on there. Without an answer, it stays where it is.
  void move(const request_actor& request, std::uint64_t number, const route_query& query);

  void end_trial(const request_actor& request, std::uint64_t tokens);

  /// It is to hear so after this time.
  void set_deadline(std::int64_t ms, const request_actor& request);
  /// The timer has fired.
  void tell_late();

  /// An actor has ended that may have been a request.
  void gone(const caf::actor_addr& request);

  /// A replica runs: those who wait may go there.
  void go_on();

  /// A replica has failed at its work: each of its requests may be why.
  void suspect_all_in(const replica& failed, const error& why);

  /// Whether a replica that starts now takes nobody but who is tried.
  bool closed() const { return suspects_.awaits() || (suspects_.pending() && !suspects_.trial()); }

  void cancel_all();
  bool empty() const { return requests_.empty(); }

private:
  /// One that was admitted, to a replica or to the wait for one.
  struct pending_request {
    request_actor request;
    std::uint64_t arrival = 0;
    std::uint64_t number = 0;   // of its last admission to a replica
    std::uint64_t tokens = 0;   // that it had when it asked last
    int replica = -1;           // where it is; -1: nowhere
    int moves_to = -1;          // where it may go on; -1: nowhere else
    route_query_ptr query = {}; // until it is admitted; null where there is one replica
    bool waiting = false;       // for a replica, with all that one needs to know
    bool held = false;          // and it would not have waited, but that it is suspected
    bool refused = false;       // and about to end

    void went(const admit_reply& with) {
      replica = with.replica;
      number = with.number;
    }
  };

  using table = std::map<caf::actor_addr, pending_request>;

  std::optional<error> refusal(bool is_new) const;
  void take(const admission_wanted& wanted);
  void take_back(pending_request& pending, const admission_wanted& wanted);
  void ask(const pending_request& pending);
  void refuse(const request_actor& request, error why);
  void send_to_replica(pending_request& pending);
  void admit_waiting();
  void wait_for_deadline();
  void try_next();
  void end_alone();
  void convict();
  table::iterator of_arrival(std::uint64_t arrival);

  engine_actor::pointer engine_;
  replica_set& replicas_;
  loaded_model_ptr model_;     // null until it is open
  std::optional<error> ended_; // why nobody is admitted any more
  table requests_;
  std::uint64_t arrivals_ = 0;
  deadlines<caf::actor_addr> deadlines_;
  suspects suspects_;
  bool were_suspects_ = false; // when somebody was to be tried last
  std::string last_fault_;     // by an exception
};

} // namespace troupe
