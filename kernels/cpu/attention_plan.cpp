#include "kernels/cpu/attention_plan.hpp"

#include <limits>

namespace troupe::kernels {

namespace {

constexpr int pieces_per_thread = 8; // the least, so that threads finish together
constexpr int max_shared_rows = 8;   // rows of a sequence that shares blocks; more rows fill tiles alone
constexpr int partition_blocks = partition_tokens / block_tokens;
constexpr int least_shared = 4; // blocks of a partition; fewer save less than the cut of the products costs

int ceil_div(int a, int b) { return (a + b - 1) / b; }

int last_position(const query_run& run, int group) {
  return run.sequence->first_position + (run.first + run.count - 1) / group;
}

int first_partition(const query_run& run, const attention_shape& shape) {
  const int position = run.sequence->first_position + run.first / shape.group;
  return shape.first_seen(position) / partition_tokens;
}

} // namespace

void attention_plan::make(const attention_shape& shape, const batch& step) {
  shape_ = shape;
  step_ = &step;
  runs_.clear();
  unshared_from_.clear();
  candidates_.clear();
  members_.clear();
  ranges_.clear();
  pieces_.clear();
  parts_.clear();
  merges_.clear();
  slots_ = 0;

  for (const auto& s : step.sequences) {
    const bool few = s.rows <= max_shared_rows;
    add_runs(s, few ? s.rows * shape.group : shape.tile_queries);
    if (few && s.rows > 0 && sees_all(static_cast<int>(runs_.size()) - 1))
      candidates_.push_back(static_cast<int>(runs_.size()) - 1);
  }
  if (candidates_.size() > 1)
    share(candidates_, 0);
  for (int run = 0; run < static_cast<int>(runs_.size()); ++run)
    if (const int last = end_partition(run); unshared_from_[run] < last)
      add_range({&run, 1}, unshared_from_[run], last);

  std::size_t work = 0; // tiles times partitions
  for (const auto& r : ranges_)
    work += std::size_t(ceil_div(r.queries, shape.tile_queries)) * (r.last - r.first) * shape.kv_heads;
  const std::size_t fair = std::max<std::size_t>(1, work / (std::size_t(pieces_per_thread) * threads_));
  for (const auto& r : ranges_)
    if (threads_ == 1 || !r.parting)
      cut(r, threads_ == 1 ? std::numeric_limits<int>::max() : static_cast<int>(fair));
    else
      cut_runs(r, static_cast<int>(fair) * shape.tile_queries);

  std::stable_sort(parts_.begin(), parts_.end(), [](const auto& a, const auto& b) { return a.run < b.run; });
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (i == 0 || parts_[i].run != parts_[i - 1].run)
      merges_.push_back({parts_[i].run, i, 0});
    ++merges_.back().parts;
  }
}

void attention_plan::add_runs(const sequence_rows& sequence, int queries_at_once) {
  const int queries = sequence.rows * shape_.group;
  const int count = queries == 0 ? 0 : ceil_div(queries, queries_at_once);
  for (int i = 0; i < count; ++i) {
    const int first = queries * i / count;
    runs_.push_back({&sequence, first, queries * (i + 1) / count - first});
    unshared_from_.push_back(first_partition(runs_.back(), shape_));
  }
}

int attention_plan::end_partition(int run) const {
  const auto& sequence = *runs_[run].sequence;
  return (shape_.end_seen(last_position(runs_[run], shape_.group), sequence) - 1) / partition_tokens + 1;
}

bool attention_plan::sees_all(int run) const { return shape_.first_seen(last_position(runs_[run], shape_.group)) == 0; }

int attention_plan::whole_partitions(int run) const {
  return (runs_[run].sequence->first_position + 1) / partition_tokens;
}

bool attention_plan::same_blocks(int a, int b, int partition) const {
  const auto blocks = [&](int run) {
    return step_->block_tables.data() + runs_[run].sequence->first_block + partition * partition_blocks;
  };
  return std::equal(blocks(a), blocks(a) + partition_blocks, blocks(b));
}

int attention_plan::blocks_seen(int run, int partition) const {
  const int end = shape_.end_seen(last_position(runs_[run], shape_.group), *runs_[run].sequence);
  return std::clamp(ceil_div(end, block_tokens) - partition * partition_blocks, 0, partition_blocks);
}

std::span<const std::int32_t> attention_plan::seen_blocks(int run, int partition) const {
  const auto first = runs_[run].sequence->first_block + partition * partition_blocks;
  return step_->block_tables.subspan(static_cast<std::size_t>(first),
                                     static_cast<std::size_t>(blocks_seen(run, partition)));
}

/// Finds the partitions that runs share from partition `first` on, given that they share all before it. Shared prefixes
/// form a tree: its stem becomes a range, and every branch with more than one run is again a tree.
void attention_plan::share(std::span<int> runs, int first) {
  int last = first;
  while (std::all_of(runs.begin(), runs.end(),
                     [&](int run) { return whole_partitions(run) > last && same_blocks(runs[0], run, last); }))
    ++last;
  if (last > first)
    add_range(runs, first, last);
  for (const int run : runs)
    unshared_from_[run] = last;

  const auto end = std::partition(runs.begin(), runs.end(), [&](int run) { return whole_partitions(run) > last; });
  std::span<int> rest(runs.begin(), end);
  while (rest.size() > 1) {
    const auto branch_end = std::partition(rest.begin() + 1, rest.end(),
                                           [&](int run) { return same_blocks(rest[0], run, last); });
    const auto count = static_cast<std::size_t>(branch_end - rest.begin());
    if (count > 1)
      share(rest.first(count), last);
    rest = rest.subspan(count);
  }
  const auto parted = std::partition(runs.begin(), runs.end(), [&](int run) { return unshared_from_[run] == last; });
  share_part({runs.begin(), parted}, last);
}

/// Finds those of the runs that share at least the first blocks of a partition, but not all.
void attention_plan::share_part(std::span<int> runs, int partition) {
  std::ranges::sort(runs, [&](int a, int b) {
    const auto of_a = seen_blocks(a, partition), of_b = seen_blocks(b, partition);
    return std::ranges::lexicographical_compare(of_a, of_b);
  });
  for (std::size_t i = 0, count = 0; i < runs.size(); i += count) {
    const auto rest = runs.subspan(i);
    const auto first = seen_blocks(rest.front(), partition);
    const auto other = std::ranges::find_if_not(rest.subspan(1), [&](int run) {
      const auto blocks = seen_blocks(run, partition);
      return first.size() >= least_shared && blocks.size() >= least_shared &&
        std::equal(first.begin(), first.begin() + least_shared, blocks.begin());
    });
    count = static_cast<std::size_t>(other - rest.begin());
    if (count == 1)
      continue;
    add_range(rest.first(count), partition, partition + 1, true);
    for (const int run : rest.first(count))
      unshared_from_[run] = partition + 1;
  }
}

void attention_plan::add_range(std::span<const int> runs, int first, int last, bool parting) {
  range r{members_.size(), runs.size(), 0, first, last, false, false, parting};
  for (const int run : runs)
    r.queries += runs_[run].count;
  r.start = first == first_partition(runs_[runs[0]], shape_);
  r.all = r.start && std::ranges::all_of(runs, [&](int run) { return last == end_partition(run); });
  members_.insert(members_.end(), runs.begin(), runs.end());
  ranges_.push_back(r);
}

void attention_plan::cut(const range& whole, int max_partitions) {
  const int partitions = whole.last - whole.first;
  const int count = ceil_div(partitions, std::min(partitions, max_partitions));
  for (int i = 0; i < count; ++i)
    add_piece(whole, whole.first + partitions * i / count, whole.first + partitions * (i + 1) / count);
}

/// Cuts by runs, where there are not several partitions.
void attention_plan::cut_runs(const range& whole, int max_queries) {
  auto part = whole;
  part.members = 0;
  part.queries = 0;
  for (std::size_t i = 0; i < whole.members; ++i) {
    const int queries = runs_[members_[whole.first_member + i]].count;
    if (part.members > 0 && part.queries + queries > max_queries) {
      add_piece(part, whole.first, whole.last);
      part.first_member += part.members;
      part.members = 0;
      part.queries = 0;
    }
    ++part.members;
    part.queries += queries;
  }
  add_piece(part, whole.first, whole.last);
}

void attention_plan::add_piece(const range& whole, int first, int last) {
  attention_piece piece{whole.first_member, whole.members, whole.queries, first, last - first};
  piece.finish = whole.all && first == whole.first && last == whole.last;
  piece.fold = piece.finish || (whole.start && first == whole.first);
  piece.parting = whole.parting;
  if (!piece.finish) {
    const int kept = piece.fold ? 1 : piece.partitions;
    piece.slot = slots_;
    piece.head_slots = std::size_t(piece.queries) * kept;
    slots_ += piece.head_slots * shape_.kv_heads;
    int before = 0; // queries in earlier runs
    for (const int run : runs_of(piece)) {
      for (int p = 0; p < kept; ++p)
        parts_.push_back({run, {piece.slot + std::size_t(p) * piece.queries + before, piece.head_slots}});
      before += runs_[run].count;
    }
  }
  pieces_.push_back(piece);
}

} // namespace troupe::kernels
