// What an engine counts, by replica and in all: a snapshot. Plain values.
#pragma once

#include "runtime/execution/model_counters.hpp"
#include "runtime/kv/kv_store_counters.hpp"
#include "runtime/scheduling/blocks/block_counters.hpp"
#include "runtime/scheduling/scheduler_counters.hpp"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe {

/// Requests of a replica that might have gone on in another one.
struct move_counters {
  std::uint64_t moved = 0, dearer = 0, gone = 0;
};

template <>
inline constexpr std::array statistics_of<move_counters>{
  counter_of(&move_counters::moved, "troupe_moves_total",
             "Requests that went on in another replica once their prompts were computed."),
  counter_of(&move_counters::dearer, "troupe_moves_dearer_total",
             "Requests that stayed, because going on in another replica was expected to take longer."),
  counter_of(&move_counters::gone, "troupe_moves_lost_total",
             "Requests that stayed, because the other replica had failed."),
};
static_assert(well_described<move_counters>());

/// Counters never go back: they go on where an actor is started again.
struct replica_stats {
  int number = 0;
  std::uint64_t restarts = 0, role_changes = 0;
  scheduler_counters scheduler = {};
  block_counters blocks = {};
  move_counters moves = {};
  kv_store_counters kept = {}; // files are those of all replicas: the first one's
  model_counters model = {};   // also of all replicas
};

template <>
inline constexpr std::array statistics_of<replica_stats>{
  counter_of(&replica_stats::restarts, "troupe_restarts_total", "Times that the engine was restarted after a failure."),
  counter_of(&replica_stats::role_changes, "troupe_role_changes_total",
             "Times that a replica took the other role, or its own again."),
};

struct engine_stats {
  replica_stats total = {}; // over the replicas; of no cost, which is each one's own
  std::vector<replica_stats> replicas = {};
};

inline engine_stats in_all(std::vector<replica_stats> replicas) {
  engine_stats all;
  for (const auto& each : replicas) {
    add_beside(all.total, each);
    add_beside(all.total.scheduler, each.scheduler);
    add_beside(all.total.blocks, each.blocks);
    add_beside(all.total.moves, each.moves);
    add_beside(all.total.kept, each.kept);
    add_beside(all.total.model, each.model);
  }
  all.replicas = std::move(replicas);
  return all;
}

/// Calls `visit(const statistic_info&, std::uint64_t)` with each of a replica's statistics.
template <class Visit>
void for_each_statistic(const replica_stats& of, Visit&& visit) {
  const auto each_of = [&]<class Counters>(const Counters& counters) {
    for (const auto& each : statistics_of<Counters>)
      visit(each.about, counters.*each.member);
  };
  each_of(of.scheduler);
  each_of(of.blocks);
  each_of(of.moves);
  each_of(of.kept);
  each_of(of.model);
  each_of(of);
}

} // namespace troupe
