#include "kernels/recurrent.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <string>

namespace troupe::kernels {

namespace {

constexpr std::int32_t most_logged = 64; // bits of run::replayed

std::atomic<std::uint64_t> steps_begun = 0; // of all caches

void expect_state(bool holds, const std::string& what) {
  if (!holds)
    throw std::invalid_argument("states: " + what);
}

std::uint64_t first_bits(std::int32_t count) {
  return count < most_logged ? (std::uint64_t(1) << count) - 1 : ~std::uint64_t(0);
}

} // namespace

state_cache::place& state_cache::at(std::int32_t slot) {
  expect_state(slot >= 0 && slot < shape.slots, "there is no slot " + std::to_string(slot));
  return slots_[static_cast<std::size_t>(slot)];
}

void state_cache::begin(std::span<const sequence_rows> sequences, std::span<const sequence_state> states,
                        std::span<const state_save> saves) {
  expect_state(sequences.size() == states.size(), "each sequence of a step must have one");
  step_ = ++steps_begun;
  runs_.clear();
  first_positions_.clear();
  after_.clear();
  first_runs_.clear();
  std::map<std::int32_t, std::int32_t> last; // run of a slot
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto& s = sequences[i];
    const auto& own = states[i];
    auto place = at(own.slot);
    if (const auto [before, is_first] = last.try_emplace(own.slot, static_cast<std::int32_t>(i)); is_first) {
      first_runs_.push_back(static_cast<std::int32_t>(i));
    } else {
      place = after_[static_cast<std::size_t>(before->second)];
      runs_[static_cast<std::size_t>(before->second)].next = static_cast<std::int32_t>(i);
      before->second = static_cast<std::int32_t>(i);
    }
    run r{s.first_row, s.rows, own.slot, s.first_position == 0, 0, own.pending, own.branch ? place.logged : 0,
          own.branch};
    expect_state(own.pending >= 0 && own.pending <= s.rows &&
                   r.logged + own.pending <= std::min(shape.pending, most_logged) &&
                   (own.pending == 0 || own.slot < shape.running),
                 std::to_string(own.pending) + " rows cannot be pending");
    expect_state(!own.branch ||
                   (own.pending == s.rows && !r.fresh && first_runs_.back() != static_cast<std::int32_t>(i)),
                 "a line of a tree begins behind its first line, and its rows are pending");
    if (!r.fresh) {
      const auto replayed = s.first_position - place.position;
      expect_state(place.position >= 0 && replayed >= 0 && replayed <= place.logged,
                   "slot " + std::to_string(own.slot) + " is at position " + std::to_string(place.position) + " with " +
                     std::to_string(place.logged) + " rows pending, not at " + std::to_string(s.first_position));
      r.replayed = own.behind != 0 ? own.behind : first_bits(replayed);
      expect_state(std::popcount(r.replayed) == replayed && (r.replayed & ~first_bits(place.logged)) == 0,
                   "a sequence at position " + std::to_string(s.first_position) + " is behind other rows of the log");
    }
    after_.push_back(own.branch ? state_cache::place{place.position, place.logged + own.pending}
                                : state_cache::place{s.first_position + s.rows - own.pending, own.pending});
    runs_.push_back(std::move(r));
    first_positions_.push_back(s.first_position);
  }
  for (const auto& save : saves) {
    expect_state(save.sequence >= 0 && std::size_t(save.sequence) < runs_.size(), "a save of no sequence");
    auto& r = runs_[static_cast<std::size_t>(save.sequence)];
    expect_state(save.rows > 0 && save.rows <= r.rows - r.pending && save.slot != r.slot, "a save of pending rows");
    at(save.slot);
    r.saves.push_back(save);
  }
  for (auto& r : runs_)
    std::ranges::stable_sort(r.saves, {}, &state_save::rows);
}

void state_cache::end() {
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const auto& r = runs_[i];
    at(r.slot) = after_[i];
    for (const auto& save : r.saves)
      at(save.slot) = {first_positions_[i] + save.rows, 0};
  }
}

void state_cache::copied(std::span<const state_copy> copies) {
  for (const auto& c : copies)
    at(c.to) = {at(c.from).position, 0};
}

void state_cache::expect_settled(std::span<const state_export> out) const {
  for (const auto& each : out) {
    expect_state(each.slot >= 0 && each.slot < shape.slots, "there is no slot " + std::to_string(each.slot));
    const auto& place = slots_[static_cast<std::size_t>(each.slot)];
    expect_state(place.position > 0 && place.logged == 0,
                 "slot " + std::to_string(each.slot) + " has no state that could be kept");
  }
}

void state_cache::imported(std::span<const state_import> in) {
  for (const auto& each : in) {
    expect_state(each.position > 0, "a state behind no rows");
    at(each.slot) = {each.position, 0};
  }
}

} // namespace troupe::kernels
