#include "runtime/model/decoder/weight_placement.hpp"

#include "runtime/support/text/byte_size.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Bytes of the experts of one unit that a token chooses; those of a layer are alike.
std::size_t chosen_bytes(const unit_bytes& unit, int chosen) {
  const auto count = std::min(unit.experts.size(), static_cast<std::size_t>(chosen));
  return count == 0 ? 0 : *std::ranges::max_element(unit.experts) * count;
}

/// `streamed` of the units at equal distances pass through memory, the others stay.
weight_placement with_streamed(const std::vector<unit_bytes>& units, std::size_t streamed) {
  weight_placement to;
  to.kept.assign(units.size(), true);
  for (std::size_t i = 0; i < streamed; ++i)
    to.kept[(2 * i + 1) * units.size() / (2 * streamed)] = false;
  std::size_t largest = 0;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (to.kept[i]) {
      to.kept_bytes += units[i].dense;
    } else {
      to.read_bytes += units[i].dense;
      largest = std::max(largest, units[i].dense);
    }
  to.passing_bytes = std::min(streamed, std::size_t(2)) * largest; // one in use, one ahead
  return to;
}

} // namespace

weight_placement place_weights(const std::vector<unit_bytes>& units, int chosen, std::size_t budget) {
  std::size_t experts = 0, of_a_token = 0, of_a_layer = 0, dense = 0;
  for (const auto& unit : units) {
    dense += unit.dense;
    for (const auto bytes : unit.experts)
      experts += bytes;
    of_a_token += chosen_bytes(unit, chosen);
    of_a_layer = std::max(of_a_layer, chosen_bytes(unit, chosen));
  }
  weight_placement to;
  if (dense + experts <= budget) {
    to = with_streamed(units, 0);
    to.expert_bytes = experts;
  } else {
    for (std::size_t streamed = 0; streamed <= units.size(); ++streamed) {
      to = with_streamed(units, streamed);
      to.passing_bytes += of_a_layer;
      if (to.memory() <= budget)
        break;
    }
    if (to.memory() <= budget && to.read_bytes == 0)
      to.expert_bytes = std::min(budget - to.memory(), experts);
    if (experts > 0)
      to.read_bytes += static_cast<std::size_t>(static_cast<double>(of_a_token) *
                                                (1 - static_cast<double>(to.expert_bytes) / double(experts)));
  }
  to.all = dense + experts;
  return to;
}

std::string described(const weight_placement& placement) {
  if (placement.fits())
    return {};
  return "of which " + to_size(placement.kept_bytes + placement.expert_bytes) +
    " stay in memory and each token reads " + to_size(placement.read_bytes) + " from disk";
}

} // namespace troupe
