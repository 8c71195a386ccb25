// Which experts of a mixture stay in memory when not all can: those that are chosen most, recent choices counting more.
// Plain bookkeeping of one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class expert_cache {
public:
  struct expert {
    std::size_t unit = 0, number = 0;

    bool operator==(const expert&) const = default;
  };

  /// `bytes`: of the experts of each unit; empty for units without. `most`: bytes that may stay.
  expert_cache(std::vector<std::vector<std::size_t>> bytes, std::size_t most);

  /// Notes that rows chose some experts of a unit, which are in memory from now on. Returns those that are to leave it:
  /// never these, even if they are more than may stay.
  std::vector<expert> choose(std::size_t unit, std::span<const int> numbers);

  std::size_t bytes() const { return held_; } // of those in memory
  bool holds(std::size_t unit, std::size_t number) const { return entries_[unit][number].held; }

private:
  struct entry {
    std::size_t bytes = 0;
    std::uint32_t choices = 0; // halved from time to time
    std::uint64_t last = 0;
    bool held = false;
  };

  void age();
  entry* least_chosen(std::size_t unit, std::span<const int> but, expert& which);

  std::vector<std::vector<entry>> entries_;
  std::size_t most_, held_ = 0;
  std::size_t experts_ = 0;
  std::uint64_t now_ = 0, since_aged_ = 0;
};

} // namespace troupe
