// Decides when a replica takes the other role: once its own has had hardly anything to do for long (no answers, or
// prompts for less than a tenth of the time), while all that time the other role had more to do than its replicas do at
// once. It goes back when its own role's work queues for a quarter of that time, or when it had nothing of the other's
// for all of it and none queues. Nobody has to leave for that: a role says where requests go from then on. Both times,
// and that they begin anew with each change, keep it from turning to and fro. Owned by the router; single-threaded. Time
// is given to it.
#pragma once

#include "runtime/scheduling/routing/replica_role.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace troupe {

/// A replica has another role from now on.
struct role_change {
  enum class reason : std::uint8_t {
    idle_while_other_queues,
    own_queues, // the role that it has by the options
    idle,       // in the role that it had taken
  };
  int replica = 0;
  replica_role to = replica_role::any;
  reason why = reason::idle;

  /// A sentence for the log. `idle`: of the role_balance.
  std::string line(std::chrono::milliseconds idle) const;
};

class role_balance {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// One replica. `home`: its role by the options; neither role is `any`.
  struct work {
    int replica = 0;
    replica_role home = replica_role::prefill, now = home;
    double prompt_ms = 0;                              // that prompts take which were sent there, since its start
    bool answers = false;                              // it has some under way, or is about to
    bool prompts_queue = false, answers_queue = false; // it has more to do than it does at once
  };

  /// `idle`: for how long a role must have had hardly anything to do; 0: roles stay.
  explicit role_balance(std::chrono::milliseconds idle = {}) : least_(idle) {}

  /// What is due, of all replicas that run; at most one change, which the caller makes.
  std::optional<role_change> due(std::span<const work> all, time_point now);

  /// It was started again, or has stopped.
  void forget(int replica) { idle_.erase(replica); }

private:
  struct idleness {
    time_point since;
    double prompt_ms = 0; // until then
  };
  bool has_work(const work& of, time_point now) const;
  std::optional<role_change> change_of(const work& one, time_point now) const;
  bool has_queued(replica_role role, std::chrono::milliseconds time, time_point now) const;

  std::chrono::milliseconds least_;
  std::map<int, idleness> idle_;                          // in the role that they have now
  std::array<std::optional<time_point>, 2> queues_since_; // of prompts, of answers
};

} // namespace troupe
