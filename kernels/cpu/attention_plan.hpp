// Cuts the attention of a step into pieces of work: queries that visit the same partitions of the context together, and
// slots that hold their partial states until these are merged. Sequences that begin with the same blocks read them once
// (Hydragen: Juravsky et al. 2024), also those of the partition in which they part. The plan decides the schedule only;
// no bit depends on it.
#pragma once

#include "kernels/cpu/target.hpp"
#include "kernels/ops.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace troupe::kernels {

struct attention_shape {
  int kv_heads = 0;
  int group = 0; // query heads of a KV head
  int window = 0;
  int tile_queries = 0; // the most that a kernel takes at once
  int chunk = 0;        // see attention_scores
  int ahead = 0;

  /// The first position that a row sees.
  int first_seen(int position) const {
    const int first = window > 0 ? std::max(0, position + 1 - window) : 0;
    return chunk > 0 ? std::max(first, position / chunk * chunk) : first;
  }

  /// The position behind the last one that it sees.
  int end_seen(int position, const sequence_rows& sequence) const {
    return ahead == 0 ? position + 1 : std::min(sequence.length, position + 1 + ahead);
  }
};

/// Queries of one sequence for a KV head: query i is row i / group, and head i % group within the KV head.
struct query_run {
  const sequence_rows* sequence = nullptr;
  int first = 0;
  int count = 0;
};

/// Some runs over consecutive partitions. Each slot holds the state of one query: from `slot` on, those of all queries
/// for the first partition, then for the next. With `fold`, the partitions are merged in the first one's slots. With
/// `finish`, the piece covers all that its queries see, and uses no slots. With `parting`, it is one partition of which
/// the runs share only the first blocks; those with more in common are neighbours. For KV head h, slots are
/// h * head_slots further on.
struct attention_piece {
  std::size_t first_member = 0, members = 0; // the runs, see `runs_of`
  int queries = 0;                           // total over the runs
  int first_partition = 0, partitions = 0;
  bool fold = false, finish = false, parting = false;
  std::size_t slot = 0, head_slots = 0;
};

/// The slot of a run's first query in a piece.
struct attention_part {
  std::size_t slot = 0, head_slots = 0;
};

/// The parts of a run, to be merged in order.
struct attention_merge {
  int run = 0;
  std::size_t first_part = 0, parts = 0;
};

class attention_plan {
public:
  explicit attention_plan(int threads) : threads_(threads) {}

  /// Plans a step; the plan is the same for every KV head. `step` must stay valid while the plan is used.
  void make(const attention_shape& shape, const batch& step);

  const std::vector<attention_piece>& pieces() const { return pieces_; }
  const std::vector<attention_merge>& merges() const { return merges_; }
  std::span<const int> runs_of(const attention_piece& piece) const {
    return {&members_[piece.first_member], piece.members};
  }
  const query_run& run(int index) const { return runs_[index]; }
  const attention_part& part(std::size_t index) const { return parts_[index].where; }
  std::size_t slots() const { return slots_; }

  /// The blocks of a partition that a run sees.
  int blocks_seen(int run, int partition) const;

private:
  /// Runs that see the partitions [first, last) of the same blocks.
  struct range {
    std::size_t first_member, members;
    int queries;
    int first, last;
    bool start; // the first partitions that the runs see
    bool all;   // and the last
    bool parting;
  };
  struct run_part {
    int run;
    attention_part where;
  };

  void add_runs(const sequence_rows& sequence, int queries_at_once);
  void share(std::span<int> runs, int first);
  void share_part(std::span<int> runs, int partition);
  void add_range(std::span<const int> runs, int first, int last, bool parting = false);
  void cut_runs(const range& whole, int max_queries);
  void cut(const range& whole, int max_partitions);
  void add_piece(const range& whole, int first, int last);
  bool sees_all(int run) const;
  int whole_partitions(int run) const;
  int end_partition(int run) const;
  bool same_blocks(int a, int b, int partition) const;
  std::span<const std::int32_t> seen_blocks(int run, int partition) const;

  int threads_;
  attention_shape shape_;
  const batch* step_ = nullptr;
  std::vector<query_run> runs_;
  std::vector<int> unshared_from_; // per run: the first partition that it does not read with others
  std::vector<int> candidates_;
  std::vector<int> members_;
  std::vector<range> ranges_;
  std::vector<attention_piece> pieces_;
  std::vector<run_part> parts_;
  std::vector<attention_merge> merges_;
  std::size_t slots_ = 0;
};

} // namespace troupe::kernels
