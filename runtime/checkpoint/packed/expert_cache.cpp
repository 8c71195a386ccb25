#include "runtime/checkpoint/packed/expert_cache.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Choices of an average expert after which older ones count half.
constexpr std::uint64_t choices_per_age = 16;

} // namespace

expert_cache::expert_cache(std::vector<std::vector<std::size_t>> bytes, std::size_t most) : most_(most) {
  for (const auto& unit : bytes) {
    auto& own = entries_.emplace_back();
    for (const auto size : unit)
      own.push_back({.bytes = size});
    experts_ += unit.size();
  }
}

std::vector<expert_cache::expert> expert_cache::choose(std::size_t unit, std::span<const int> numbers) {
  ++now_;
  for (const int number : numbers) {
    auto& e = entries_[unit][static_cast<std::size_t>(number)];
    ++e.choices;
    e.last = now_;
    if (!std::exchange(e.held, true))
      held_ += e.bytes;
  }
  since_aged_ += numbers.size();
  if (since_aged_ > choices_per_age * experts_)
    age();
  std::vector<expert> leave;
  expert which;
  while (held_ > most_) {
    auto* least = least_chosen(unit, numbers, which);
    if (least == nullptr)
      break;
    least->held = false;
    held_ -= least->bytes;
    leave.push_back(which);
  }
  return leave;
}

void expert_cache::age() {
  since_aged_ = 0;
  for (auto& unit : entries_)
    for (auto& e : unit)
      e.choices /= 2;
}

expert_cache::entry* expert_cache::least_chosen(std::size_t unit, std::span<const int> but, expert& which) {
  entry* least = nullptr;
  for (std::size_t u = 0; u < entries_.size(); ++u)
    for (std::size_t n = 0; n < entries_[u].size(); ++n) {
      auto& e = entries_[u][n];
      if (!e.held || (u == unit && std::ranges::find(but, static_cast<int>(n)) != but.end()))
        continue;
      if (least == nullptr || std::pair(e.choices, e.last) < std::pair(least->choices, least->last)) {
        least = &e;
        which = {u, n};
      }
    }
  return least;
}

} // namespace troupe
