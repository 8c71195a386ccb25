#include "kernels/cuda/attention_plan.hpp"

#include <algorithm>
#include <map>

namespace troupe::kernels::cuda {

namespace {

constexpr int partition_blocks = partition_tokens / block_tokens, quarter_blocks = quarter_tokens / block_tokens;
constexpr int flash_least = flash_tile; // packed queries of a sequence; fewer are not worth flash attention
// Chunks that end within so many tokens are not worth splitting.
constexpr int split_least = 2 * partition_tokens;

/// Consecutive rows of one sequence.
struct segment {
  std::int32_t first_row, rows, first_position, first_block, length;
  int last_position() const { return first_position + rows - 1; }
};

class planner {
public:
  planner(const batch& step, const attention_options& options) : step_(step), options_(options) {
    for (auto s : step.sequences) {
      while (s.rows > 0 && !options.plans(s.first_position + s.rows - 1))
        --s.rows;
      for (; s.rows > 0 && !options.plans(s.first_position); --s.rows, ++s.first_position)
        ++s.first_row;
      if (s.rows > 0)
        sequences_.push_back(s);
    }
  }

  attention_plan plan() {
    for (const auto& s : step_.sequences)
      for (int i = 0; i < s.rows; ++i) {
        const int position = s.first_position + i;
        const int first = options_.first_seen(position);
        plan_.rows.push_back({position, first / partition_tokens, 0, first, options_.end_seen(position, s.length)});
        plan_.list.push_back(s.first_row + i);
      }
    const bool fills = fills_device();
    for (const auto& s : sequences_) {
      if (takes_flash(s) && (fills || s.first_position + s.rows <= split_least))
        add_tiles(plan_.flash, {s.first_row, s.rows, s.first_position, s.first_block, s.length}, flash_tile,
                  s.first_block, 0);
      else
        add_rows(s);
    }
    close_slab();
    return std::move(plan_);
  }

private:
  bool takes_flash(const sequence_rows& s) const { return options_.flash && s.rows * options_.group >= flash_least; }

  /// Whether flash attention has enough blocks for at least half of the multiprocessors. A block passes over the whole
  /// context; with fewer, partitions side by side are faster, although they read K and V once for 32 queries, not 128,
  /// and their states pass through memory.
  bool fills_device() const {
    int blocks = 0;
    for (const auto& s : sequences_)
      if (takes_flash(s))
        blocks += (s.rows * options_.group + flash_tile - 1) / flash_tile * options_.kv_heads;
    return 2 * blocks >= options_.multiprocessors;
  }

  /// Assigns slots to each row, closing a slab when it is full.
  void add_rows(const sequence_rows& s) {
    segment part{s.first_row, 0, s.first_position, s.first_block, s.length};
    for (int i = 0; i < s.rows; ++i) {
      auto& row = plan_.rows[static_cast<std::size_t>(s.first_row + i)];
      const auto slots = static_cast<std::size_t>(row.end_partition() - row.first_partition);
      if (slots_ > 0 && slots_ + slots > options_.most_slots) {
        add_segment(part);
        close_slab();
        part = {s.first_row + i, 0, row.position, s.first_block, s.length};
      }
      row.slot = static_cast<std::int32_t>(slots_);
      slots_ += slots;
      ++part.rows;
    }
    add_segment(part);
  }

  void add_segment(const segment& part) {
    if (part.rows > 0)
      segments_.push_back(part);
  }

  /// Adds works for all partitions of the slab's segments.
  void close_slab() {
    if (segments_.empty())
      return;
    attention_slab slab{.small_first = plan_.small.size(),
                        .large_first = plan_.large.size(),
                        .common_first = plan_.common.size(),
                        .merge_first = static_cast<std::int32_t>(plan_.list.size())};
    for (const auto& part : segments_)
      for (int i = 0; i < part.rows; ++i, ++slab.merge)
        plan_.list.push_back(part.first_row + i);
    auto all = groups();
    if (options_.share && options_.least_common > 0)
      share_quarters(all);
    for (const auto& [partition, members, common] : all) {
      const auto& leader = segments_[members.front()];
      const auto table = leader.first_block + partition * partition_blocks;
      add_works(members.size() == 1 ? leader : listed(members), table, partition, common);
    }
    slab.small = plan_.small.size() - slab.small_first;
    slab.large = plan_.large.size() - slab.large_first;
    slab.common = plan_.common.size() - slab.common_first;
    plan_.slabs.push_back(slab);
    plan_.slots = std::max(plan_.slots, slots_);
    slots_ = 0;
    segments_.clear();
  }

  struct group {
    int partition;
    std::vector<std::size_t> members; // segments
    int common = 0;                   // quarters that others share, too
  };

  /// The rows of several segments, one after another in the list.
  segment listed(const std::vector<std::size_t>& members) {
    segment all{static_cast<std::int32_t>(plan_.list.size()), 0, 0, 0, 0};
    for (const auto member : members)
      for (int i = 0; i < segments_[member].rows; ++i, ++all.rows)
        plan_.list.push_back(segments_[member].first_row + i);
    return all;
  }

  std::span<const std::int32_t> blocks_of(const segment& s, int partition, int quarters) const {
    return step_.block_tables.subspan(static_cast<std::size_t>(s.first_block + partition * partition_blocks),
                                      static_cast<std::size_t>(quarters * quarter_blocks));
  }

  /// Quarters of a partition that all rows of a segment see whole, from its beginning on; none of longer segments, which
  /// read K and V for many queries at once, while their states pass through memory.
  int whole_quarters(const segment& s, int partition) const {
    const int start = partition * partition_tokens;
    if (s.rows * options_.group > small_tile || options_.first_seen(s.last_position()) > start)
      return 0;
    return std::clamp((options_.end_seen(s.first_position, s.length) - start) / quarter_tokens, 0,
                      partition_quarters - 1);
  }

  /// Finds segments that share the first quarters of a partition and not all of it.
  void share_quarters(std::vector<group>& all) {
    std::map<std::vector<std::int32_t>, std::vector<std::size_t>> by_first; // quarter and partition → groups
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& s = segments_[all[i].members.front()];
      if (all[i].members.size() > 1 || whole_quarters(s, all[i].partition) == 0)
        continue;
      const auto blocks = blocks_of(s, all[i].partition, 1);
      std::vector<std::int32_t> key(blocks.begin(), blocks.end());
      key.push_back(all[i].partition);
      by_first[std::move(key)].push_back(i);
    }
    for (const auto& [key, found] : by_first)
      if (found.size() > 1)
        share_quarters(all, found);
  }

  void share_quarters(std::vector<group>& all, const std::vector<std::size_t>& of) {
    const int partition = all[of.front()].partition;
    const auto& first = segments_[all[of.front()].members.front()];
    std::vector<std::size_t> members;
    std::size_t rows = 0;
    int common = partition_quarters;
    for (const auto i : of) {
      members.push_back(all[i].members.front());
      const auto& s = segments_[members.back()];
      rows += static_cast<std::size_t>(s.rows);
      common = std::min(common, whole_quarters(s, partition));
      while (!std::ranges::equal(blocks_of(s, partition, common), blocks_of(first, partition, common)))
        --common;
    }
    const auto slots = rows * static_cast<std::size_t>(common);
    if (static_cast<int>(of.size() - 1) * common < options_.least_common || slots_ + slots > options_.most_slots)
      return;
    for (const auto i : of)
      all[i].common = common;
    for (const auto member : members)
      for (int i = 0; i < segments_[member].rows; ++i, slots_ += static_cast<std::size_t>(common))
        plan_.rows[static_cast<std::size_t>(segments_[member].first_row + i)].common_slot = static_cast<std::int32_t>(
          slots_);
    add_tiles(plan_.common, listed(members), large_tile, first.first_block + partition * partition_blocks, partition,
              common);
  }

  /// The partitions with their segments. Segments share a partition if it consists of the same blocks and all their
  /// rows see all of it.
  std::vector<group> groups() const {
    std::vector<group> result;
    std::map<std::vector<std::int32_t>, std::size_t> known; // partition and blocks → group
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      const auto& s = segments_[i];
      const int first = options_.first_seen(s.first_position) / partition_tokens;
      const int end = ceil_div(options_.choosing ? options_.most : options_.end_seen(s.last_position(), s.length),
                               partition_tokens);
      for (int p = first; p < end; ++p) {
        const bool whole = (p + 1) * partition_tokens <= options_.end_seen(s.first_position, s.length) &&
          options_.first_seen(s.last_position()) / partition_tokens <= p;
        if (options_.share && whole && segments_.size() > 1) {
          const auto blocks = blocks_of(s, p, partition_quarters);
          std::vector<std::int32_t> key(blocks.begin(), blocks.end());
          key.push_back(p);
          const auto [found, added] = known.try_emplace(std::move(key), result.size());
          if (!added) {
            result[found->second].members.push_back(i);
            continue;
          }
        }
        result.push_back({p, {i}});
      }
    }
    return result;
  }

  /// `rows.first_row` is an index into the list, which begins with the step's rows in order.
  void add_works(const segment& rows, std::int32_t table, int partition, int common) {
    const bool few = rows.rows * options_.group <= small_tile;
    add_tiles(few ? plan_.small : plan_.large, rows, few ? small_tile : large_tile, table, partition, common);
  }

  void add_tiles(std::vector<attention_work>& to, const segment& rows, int tile, std::int32_t table, int partition,
                 int common = 0) {
    const int packed = rows.rows * options_.group;
    for (int first = 0; first < packed; first += tile)
      to.push_back({rows.first_row, first, std::min(tile, packed - first), table, partition, common});
  }

  const batch& step_;
  const attention_options& options_;
  std::vector<sequence_rows> sequences_; // of the step, with the rows that are planned
  attention_plan plan_;
  std::vector<segment> segments_;
  std::size_t slots_ = 0;
};

} // namespace

int attention_options::first_seen(int position) const {
  const int first = window > 0 ? std::max(0, position + 1 - window) : 0;
  return chunk > 0 ? std::max(first, position / chunk * chunk) : first;
}

int attention_options::end_seen(int position, int length) const {
  if (seen.window > 0)
    return seen.count(position);
  if (choosing)
    return most + 1 - unit + (grouped ? (position + 1) % unit : position % unit);
  return ahead == 0 ? position + 1 : std::min(length, position + 1 + ahead);
}

attention_plan plan_attention(const batch& step, const attention_options& options) {
  return planner(step, options).plan();
}

} // namespace troupe::kernels::cuda
