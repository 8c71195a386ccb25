// What is known of the replicas that run: what each has reported last, what was sent there since, which prefixes it was
// sent, and which requests will go on there. Decides nothing. Owned by the router; single-threaded.
#pragma once

#include "runtime/scheduling/cost/load_report.hpp"
#include "runtime/scheduling/routing/prefix_memory.hpp"
#include "runtime/scheduling/routing/replica_role.hpp"
#include "runtime/scheduling/routing/route_query.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace troupe {

/// What a replica is like. `bytes`: for all that is remembered of its prefixes.
struct replica_capacity {
  std::int32_t blocks = 0, slots = 0, queue = 0;
  std::int32_t step_rows = 0; // before it has reported any
  std::size_t bytes = 16 << 20;
  replica_role role = replica_role::any;
  double block_copy_ms = 0; // in which a block comes here from another replica
};

struct routed_replica {
  /// Requests ahead of another one.
  struct queue {
    step_shape prompts; // without what is cached
    std::int32_t sequences = 0, requests = 0;
  };

  load_report load;
  replica_capacity of;
  prefix_memory prefixes;
  replica_role home = replica_role::any; // of.role is what it does now
  double prompt_ms = 0;                  // that all prompts take which were sent there
  queue sent = {};                       // and not part of the report

  bool has_room() const { return sent.requests < load.queue_room; }
  /// Sequences that wait there.
  std::int32_t waiting() const { return load.waiting + sent.sequences; }
};

class replica_loads {
public:
  /// A replica runs, with an empty cache. Reports of other lives of it count for nothing.
  void start(int replica, std::uint64_t life, const replica_capacity& of);
  /// It takes no more requests, and what was sent there is gone.
  void stop(int replica);
  /// Whether the report counts.
  bool take(const load_report& report);

  /// Counts until a report has it. `prompt_ms`: that its prompt takes.
  void send(std::uint64_t request, int replica, const step_shape& prompt, double prompt_ms, const route_query& what);
  /// It will go on in another replica, where its prompt is cached then.
  void await(std::uint64_t request, int replica, const route_query& what) {
    coming_.insert_or_assign(request, coming_request{replica, what.chain});
  }
  /// What will be cached is there.
  void arrive(std::uint64_t request, int replica);
  /// A request has ended, perhaps before its replica heard of it.
  void end(std::uint64_t request);
  void give_role(int replica, replica_role role) { replicas_.at(replica).of.role = role; }

  const std::map<int, routed_replica>& all() const { return replicas_; } // by number
  const routed_replica& at(int replica) const { return replicas_.at(replica); }
  /// Null: it does not run.
  const routed_replica* find(int replica) const;
  bool have(replica_role role) const;
  bool have_room() const;
  /// Requests that will go on there.
  double coming_to(const routed_replica& r) const;
  /// The report by which its costs are known.
  const load_report& measured(const routed_replica& r) const;

private:
  struct sent_request {
    int replica = 0;
    step_shape prompt;
    std::int32_t sequences = 0;
  };
  struct coming_request {
    int replica = 0;
    std::vector<std::uint64_t> chain; // of its prompt, which will be cached there
  };

  void forget_sent(std::uint64_t request);

  std::map<int, routed_replica> replicas_;
  std::map<std::uint64_t, sent_request> sent_; // not yet part of a report
  std::map<std::uint64_t, coming_request> coming_;
};

} // namespace troupe
