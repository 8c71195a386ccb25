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

#include "runtime/scheduling/routing/awaited_answers.hpp"
#include "runtime/scheduling/routing/replica_loads.hpp"
#include "runtime/scheduling/routing/replica_role.hpp"
#include "runtime/scheduling/routing/role_balance.hpp"
#include "runtime/scheduling/routing/route_query.hpp"

#include <cstdint>
#include <optional>
#include <utility>

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
  using capacity = replica_capacity;

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
  void end(std::uint64_t request) {
    loads_.end(request);
    answers_.end(request);
  }

  /// Has a replica take the other role, if that is due. Call it when something was sent or reported.
  std::optional<role_change> yield_roles(role_balance::time_point now);

  /// The role of a replica now; `any` where it does not run.
  replica_role role_of(int replica) const;

  /// Whether any replica's queue has room for one more request.
  bool has_room() const { return loads_.have_room(); }

  /// How long answers become, as far as they have ended anywhere.
  length_model& lengths() { return answers_.lengths(); }

private:
  role_balance::work work_of(const routed_replica& r) const;

  bool strict_;
  role_balance roles_;
  replica_loads loads_;
  awaited_answers answers_;
  double prompt_ms_ = 0; // of recent requests, where replicas have roles
};

} // namespace troupe
