// Chooses the replica that computes a request: the one where it is expected to be answered first. That is the time
// until its first token (what is queued and under way there, as last reported, and what was sent there since; then its
// own prompt, but for what is cached there; and the time until slots and blocks are free, where there are too few), and
// what its answer takes at the pace of those that decode there. All of it is milliseconds by each replica's own step
// cost, so nothing is weighed against anything else. Without the answer's part, those who share the beginning of their
// prompts would fill one replica to its last slot while others idle.
//
// Where replicas have roles, a request may be computed by two: its prompt by one that prefills, its answer by one that
// decodes. What is weighed then is also what others lose: a prompt beside answers holds up each of them for as long as
// it takes. So long prompts do not come between the tokens of others, unless they would wait for even longer; a short
// prompt, or one that is cached there, may. A replica that prefills is reckoned to be busy with prompts, so an answer
// stays there only if it is so short that a move takes longer; or, where those that decode have no room, if recent
// requests were mostly answers.
//
// A replica may take the other role for a while (role_balance): its capacity's is the one that it begins with.
//
// Prefixes make it sticky: it remembers which chains of blocks each replica was sent. Deterministic: equal times go to
// the replica with fewer sequences, then to the lower number. Owned by the engine; single-threaded.
#pragma once

#include "runtime/scheduling/cost/load_report.hpp"
#include "runtime/scheduling/cost/step_pace.hpp"
#include "runtime/scheduling/lengths/expected_answer.hpp"
#include "runtime/scheduling/routing/prefix_memory.hpp"
#include "runtime/scheduling/routing/replica_role.hpp"
#include "runtime/scheduling/routing/role_balance.hpp"
#include "runtime/scheduling/routing/route_query.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

struct route {
  int replica = 0;
  std::int32_t cached_tokens = 0; // expected to be found there
  double ms = 0;                  // that the request is expected to take
  int moves_to = -1;              // the replica where it is expected to go on behind its prompt; -1: there
};

/// Whether a request goes on in another replica.
struct move_choice {
  enum class reason : std::uint8_t {
    moves,
    gone,   // the other replica does not run
    dearer, // staying is expected to be faster
  };
  reason why = reason::gone;
  std::optional<route> to = {}; // if it moves
};

class router {
public:
  /// What replicas are like. `bytes`: for all that is remembered of one replica's prefixes.
  struct capacity {
    std::int32_t blocks = 0, slots = 0, queue = 0;
    std::int32_t step_rows = 0; // before it has reported any
    std::size_t bytes = 16 << 20;
    replica_role role = replica_role::any;
    double block_copy_ms = 0; // in which a block comes here from another replica
  };

  /// `strict`: replicas do what their roles say as long as there are any, whatever it costs.
  explicit router(bool strict = false, role_balance roles = role_balance())
    : strict_(strict), roles_(std::move(roles)) {}

  /// A replica runs, with an empty cache. Reports of other lives of it count for nothing.
  void start(int replica, std::uint64_t life, const capacity& of);

  /// It takes no more requests, and what was sent there is gone.
  void stop(int replica);

  void take(const load_report& report);

  /// Nothing if no replica runs. The request counts as sent.
  std::optional<route> choose(std::uint64_t request, const route_query& what);

  /// A request, `was`, may leave replica `from` for another one, where its blocks have come. If it does, it counts as
  /// sent there under a new number.
  move_choice move(int from, int to, std::uint64_t was, std::uint64_t request, const route_query& what);

  /// A request has ended, perhaps before its replica heard of it.
  void end(std::uint64_t request);

  /// Has a replica take the other role, if that is due. Call it when something was sent or reported.
  std::optional<role_change> yield_roles(role_balance::time_point now);

  /// The role of a replica now; `any` where it does not run.
  replica_role role_of(int replica) const;

  /// Whether any replica's queue has room for one more request.
  bool has_room() const;

  /// How long answers become, as far as they have ended anywhere.
  length_model& lengths() { return lengths_; }

private:
  /// Requests ahead of another one.
  struct queue {
    step_shape prompts; // without what is cached
    std::int32_t sequences = 0, requests = 0;
  };
  struct replica_state {
    load_report load;
    capacity of;
    prefix_memory prefixes;
    replica_role home = replica_role::any; // of.role is what it does now
    double prompt_ms = 0;                  // that all prompts take which were sent there
    queue sent = {};                       // and not part of the report
  };
  struct sent_request {
    int replica = 0;
    step_shape prompt;
    std::int32_t sequences = 0;
  };

  /// What is weighed of a request.
  struct asked_for : route_query {
    double answer = 0;      // tokens that are expected to follow
    double long_answer = 0; // that follow at most, with a probability of 0.8
  };

  struct coming_request {
    int replica = 0;
    std::vector<std::uint64_t> chain; // of its prompt, which will be cached there
  };

  static bool has_room(const replica_state& r) { return r.sent.requests < r.load.queue_room; }
  const load_report& measured(const replica_state& r) const;
  replica_pace pace_of(const replica_state& r) const;
  bool runs(replica_role role) const;
  role_balance::work work_of(const replica_state& r) const;
  void forget_sent(std::uint64_t request);
  asked_for weighed(const route_query& what) const;
  void await(std::uint64_t request, const route_query& what);
  void learn(const ended_answer& ended);
  double wait_ms(const replica_state& r, double rows, std::int32_t sequences) const;
  double first_token_ms(const replica_state& r, const step_shape& prompt, const asked_for& what) const;
  double answer_ms(const replica_state& r, const step_shape& prompt, const asked_for& what) const;
  double delay_of_others(const replica_state& r, const step_shape& prompt) const;
  double handover_ms(const replica_state& to, const step_shape& missing, const asked_for& what) const;
  std::int32_t cached_tokens(const replica_state& r, const route_query& what) const;
  double alone_ms(const replica_state& r, const step_shape& prompt) const;
  void send(std::uint64_t request, int replica, const step_shape& prompt, const route_query& what);

  bool strict_;
  role_balance roles_;
  std::map<int, replica_state> replicas_;          // that run, by number
  std::map<std::uint64_t, sent_request> sent_;     // not yet part of a report
  std::map<std::uint64_t, coming_request> coming_; // that will go on in another replica
  length_model lengths_;
  std::map<std::uint64_t, expected_answer> awaited_; // of requests that have not ended, as far as is known
  double prompt_ms_ = 0;                             // of recent requests
};

} // namespace troupe
