// Divides a machine's cores, once, among the groups of threads that compute at the same time: the ranks of the stages
// of the replicas. Models that take turns (a model and one beside it) belong to one group. Immutable.
#pragma once

#include "runtime/support/machine/machine_cores.hpp"

#include <vector>

namespace troupe {

/// Replicas of stages of ranks.
struct core_layout {
  int replicas = 1, stages = 1, ranks = 1;

  int groups() const { return replicas * stages * ranks; }
};

/// What computes together.
struct core_group {
  int threads = 1;
  std::vector<int> cores = {}; // that its threads stay on; empty: any
};

class core_plan {
public:
  /// `threads`: of all groups; 0: as many as the cores can run at once. Groups get as many each, the first ones one
  /// more where it does not come out even, and neighbouring cores of their own if there are as many as threads. A
  /// single group shares the machine as the system likes. Throws failure(bad_request) if some group would have no
  /// thread.
  core_plan(int threads, const machine_cores& on, core_layout layout = {});

  const core_group& group(int replica, int stage, int rank) const;

private:
  core_layout layout_;
  std::vector<core_group> groups_; // [replicas, stages, ranks]
};

} // namespace troupe
