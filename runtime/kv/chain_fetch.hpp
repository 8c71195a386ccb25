// Reads the blocks of one chain from a kv_store, a portion at a time, for as long as reading is expected to take less
// time than computing. With recurrent layers, as far as there is a state, and then that one. Single-threaded; made for
// each prompt, by the thread that reads.
#pragma once

#include "runtime/kv/kv_store.hpp"
#include "runtime/scheduling/block_image.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// How long blocks take to read, learned from those read. What keeps blocks from being read is slowly forgotten: else a
/// disk that was slow once would never be measured again.
class read_time {
public:
  /// 0 while nothing is known.
  double block_ms() const { return ms_; }

  void observe(double ms_per_block) {
    const auto ms = std::clamp(ms_per_block, 0.0, most_ms); // more: the machine stood still
    ms_ = ms_ == 0 ? ms : ms_ + (ms - ms_) / 8;
  }

  /// Whether reading a block is expected to take less than computing it; 0: not known.
  bool less_than(double recompute_ms) const { return recompute_ms <= 0 || ms_ < recompute_ms; }

  /// A chain is not read for that reason.
  void fade() { ms_ -= ms_ / 16; }

private:
  static constexpr double most_ms = 1000;

  double ms_ = 0;
};

class chain_fetch {
public:
  using clock_fn = std::function<std::chrono::steady_clock::time_point()>;

  /// From the chain's place `first` on, whose predecessor has the key `before`. `recompute_ms`: of a block; 0: not
  /// known. `now`: by which reading is timed. `reached`, with recurrent layers: states are of use behind the block of
  /// this place or a later one, and `before` is the key of the block before that one.
  chain_fetch(kv_store& store, read_time& times, std::span<const token_id> tokens, std::int32_t first,
              const block_key& before, double recompute_ms, clock_fn now = std::chrono::steady_clock::now,
              std::optional<std::int32_t> reached = {});

  /// Whether there may be more.
  bool goes_on() const { return goes_on_ || !states_.empty(); }

  /// The next blocks, at most so many and so many as there are images for. Ends the chain at a block that is missing or
  /// damaged.
  std::vector<block_image_ptr> next(const image_pool& images, std::size_t most);

  /// Once there are no more blocks, the last state behind those that were read or cached before; or null.
  block_image_ptr state(const image_pool& images);

private:
  void find_states(std::int32_t reached, block_key key);
  std::span<const token_id> tokens_of(std::int32_t place) const;

  kv_store& store_;
  read_time& times_;
  std::span<const token_id> tokens_;
  std::int32_t place_;
  block_key key_;
  double recompute_ms_;
  clock_fn now_;
  bool goes_on_;                                           // with blocks
  std::optional<std::int32_t> end_;                        // of the blocks that are of use
  std::vector<std::pair<std::int32_t, block_key>> states_; // there are files of these: places, and keys of the blocks
};

} // namespace troupe
