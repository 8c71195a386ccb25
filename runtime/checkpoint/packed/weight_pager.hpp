// Weights that stay in their file while a model runs. A pass goes through *units*: the layers, then the head. Matrices
// that fit in memory are mapped and left to the system; those of *streamed* units are read one unit ahead by a thread
// of the pager and dropped behind the pass, so that they never push out what is read by every pass. Of mixtures the
// chosen experts are read. Each block is compared with its checksum when it is first read.
//
// One pager serves all decoders of a model, on their threads; each has a weight_walk.
#pragma once

#include "runtime/checkpoint/packed/expert_cache.hpp"
#include "runtime/checkpoint/packed/packed_file.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

/// The mapped matrices of a layer, or of the head.
struct paged_unit {
  std::vector<packed_place> dense = {}; // that every pass reads
  std::vector<std::vector<packed_place>> experts = {};
  bool streamed = false; // `dense` does not fit in memory
};

class weight_pager {
public:
  /// `expert_bytes`: of experts that may stay in memory; nothing: all fit.
  weight_pager(std::shared_ptr<const packed_file> file, std::vector<paged_unit> units,
               std::optional<std::size_t> expert_bytes);
  ~weight_pager();
  weight_pager(const weight_pager&) = delete;
  weight_pager& operator=(const weight_pager&) = delete;

  /// Whether some units do not fit in memory.
  bool streams() const { return streams_; }

  /// Bytes asked of the disk so far: of streamed units, of chosen experts, and of what is left to the system where it
  /// was not in memory when a pass came to it.
  std::uint64_t read_bytes() const { return read_bytes_.load(std::memory_order_relaxed); }

private:
  friend class weight_walk;

  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  enum class place : std::uint8_t { disk, asked, memory, unreadable };
  enum class order : std::uint8_t { read, drop, look };

  void move(std::size_t from, std::size_t to, kernels::thread_pool& pool);
  void choose(std::size_t unit, std::span<const int> experts, kernels::thread_pool& pool);
  void leave(std::size_t unit);

  void begin_pass();
  void wait_for(std::size_t unit);
  void tell(order what, std::size_t unit);
  void work();
  void obey(order what, std::size_t unit, std::unique_lock<std::mutex>& lock);
  bool bring(std::span<const packed_place> places);
  bool is_settled(std::size_t unit) const;

  const std::shared_ptr<const packed_file> file_;
  const std::vector<paged_unit> units_;
  std::vector<std::size_t> next_streamed_; // of each unit, around; none: there is none
  bool streams_ = false;
  std::atomic<bool> settled_ = false; // nothing is streamed, and all blocks of dense matrices have been compared
  std::atomic<bool> watching_ = true; // some pages may not be in memory
  std::atomic<long> faults_ = 0;      // of the process, when the last pass began
  std::atomic<std::uint64_t> read_bytes_ = 0;

  std::mutex mutex_; // of all below
  std::condition_variable told_, done_;
  std::vector<place> places_;      // of streamed units
  std::vector<std::size_t> users_; // walks that are in the unit
  std::vector<bool> looked_;       // the reader has asked for what was missing, since a walk was there
  std::optional<expert_cache> experts_;
  std::deque<std::pair<order, std::size_t>> orders_;
  bool stop_ = false;
  std::thread reader_;
};

/// A decoder's way through the units. Does nothing without a pager. Used by the decoder's thread.
class weight_walk {
public:
  weight_walk() = default;
  /// `pool`: that of the decoder's backend.
  weight_walk(std::shared_ptr<weight_pager> pager, kernels::thread_pool* pool);
  ~weight_walk();
  weight_walk(weight_walk&& other) noexcept
    : pager_(std::move(other.pager_)), pool_(other.pool_), at_(std::exchange(other.at_, weight_pager::none)) {}
  weight_walk(const weight_walk&) = delete;
  weight_walk& operator=(const weight_walk&) = delete;

  /// Call before the matrices of a unit are used. Returns when they are in memory, as far as one can tell. Throws
  /// failure(bad_file) if they cannot be read or are damaged.
  void enter(std::size_t unit) {
    if (pager_ && unit != at_)
      go(unit);
  }

  /// Like the above for experts of the unit that was entered.
  void choose(std::span<const int> experts) {
    if (pager_)
      pager_->choose(at_, experts, *pool_);
  }

  explicit operator bool() const { return pager_ != nullptr; }

private:
  void go(std::size_t unit);

  std::shared_ptr<weight_pager> pager_;
  kernels::thread_pool* pool_ = nullptr;
  std::size_t at_ = weight_pager::none;
};

} // namespace troupe
