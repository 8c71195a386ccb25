// What goes wrong in a simulation: deaths of actors before or behind a message, allocations that are refused, loads that fail, and
// messages between replicas that are lost or late. Sees every message of every actor, keeps what is known of each (its kind, its
// mailbox, the phase of a request), checks what decides within it, and writes the trace.
#pragma once

#include "actors/actor_hooks.hpp"
#include "tests/simulation/coverage.hpp"
#include "tests/simulation/dice.hpp"
#include "tests/simulation/scenario.hpp"

#include <caf/actor_addr.hpp>
#include <caf/fwd.hpp>
#include <caf/message.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace troupe::simulation {

/// What has happened, by which last events are judged.
struct happened {
  int exceptions = 0, kills = 0, refusals = 0, lost_devices = 0;
  bool engine_died = false, ready = false; // ready: at some time
  std::set<caf::actor_id> dead_requests;
  std::size_t messages = 0, longest_mailbox = 0;
};

class troublemaker final : public actor_hooks {
public:
  troublemaker(const scenario& s, bool traced);
  ~troublemaker() override;

  void queued(const char* kind, caf::local_actor& to) override;
  bool before(const handler& who, const caf::mailbox_element& what) override;
  void after(const handler& who, const caf::mailbox_element& what, caf::invoke_message_result result) override;
  void ended(const char* kind, caf::local_actor& who) noexcept override;

  /// Behind each job: no allocation is refused from here on. Whether one was.
  bool calm_down();

  /// On a thread that is no actor's: perhaps an allocation is refused, until calm_down.
  void perhaps_refuse(int most);

  /// A loader begins. Throws what a load may.
  void begin_load(bool of_judge);

  /// Delivers a message that is late, if there is one.
  bool deliver_late();
  bool has_late() const { return !late_.empty(); }

  /// Sometimes kills an actor from outside.
  void perhaps_kill();

  /// Nobody dies any more.
  void relent() { left_ = fragile_left_ = refusal_every_ = 0, may_lose_ = false; }

  /// The kinds of those that have not ended.
  std::string who_is_left() const;

  bool traced() const { return traced_; }
  void say(const std::string& line) const;

  happened seen;
  coverage covered;
  std::string trouble;                   // the first; empty: none
  bool stopping = false, loaded = false; // the engine

private:
  struct known {
    const char* kind = "";
    std::string phase = "new"; // of requests
    std::size_t queued = 0;
    caf::weak_actor_ptr self = {};
  };

  known& of(const char* kind, caf::local_actor& who);
  std::string state_of(const handler& who);
  void follow(known& request, const caf::mailbox_element& what, const std::string& name);
  bool may_die(const std::string& kind) const;
  void count_death(const known& who, const char* how);
  [[noreturn]] void fail(const known& who, caf::actor_id id, bool loses_device = false);
  void check(const handler& who);
  bool lose(const handler& who, const caf::mailbox_element& what, const std::string& name);

  const scenario& s_;
  bool traced_;
  dice dice_;
  int left_, fragile_left_, refusal_every_;
  caf::actor_id dies_behind_ = 0; // whose handler is to fail once it is done
  bool armed_ = false, may_lose_ = true;
  int loads_ = 0, judge_loads_ = 0;
  actor_hooks* before_; // of a simulation that waits for this one
  std::map<caf::actor_id, known> actors_;
  std::set<caf::actor_id> gone_;
  std::map<std::string, int> alive_; // by kind

  /// A message between replicas that comes later.
  struct late_message {
    caf::weak_actor_ptr to, sender;
    caf::message what;
  };
  std::vector<late_message> late_;
};

} // namespace troupe::simulation
