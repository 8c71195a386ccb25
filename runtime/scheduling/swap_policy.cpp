#include "runtime/scheduling/swap_policy.hpp"

#include <algorithm>

namespace troupe {

namespace {

// Weight of a step after each later one: about the last ten matter.
constexpr double decay = 0.9;

} // namespace

void swap_policy::planned(const step_plan& plan, time_point now) {
  if (rates_.block_bytes == 0)
    return;
  std::size_t of_prompts = 0;
  for (const auto& s : plan.sequences)
    if (s.rows > 1)
      of_prompts += static_cast<std::size_t>(s.rows);
  const auto rows = plan.tokens.size();
  in_flight_.push_back({plan.step, rows, of_prompts * 2 > rows && rows >= kernels::block_tokens, now});
}

void swap_policy::finished(std::uint64_t number, time_point now) {
  while (!in_flight_.empty() && in_flight_.front().number <= number) {
    const auto step = in_flight_.front();
    in_flight_.pop_front();
    if (step.number == number && step.prefills) {
      // A step planned ahead begins when the one before it ends.
      const auto began = std::max(step.sent, last_end_);
      seconds_ = seconds_ * decay + std::chrono::duration<double>(now - began).count();
      rows_ = rows_ * decay + static_cast<double>(step.rows);
    }
    last_end_ = now;
  }
}

std::optional<double> swap_policy::prefill_seconds() const {
  if (rows_ == 0)
    return std::nullopt;
  return seconds_ / rows_;
}

swap_decision swap_policy::decide() const {
  const auto token = prefill_seconds();
  if (!token || rates_.block_bytes == 0 || rates_.to_host <= 0 || rates_.to_device <= 0)
    return {};
  const auto bytes = static_cast<double>(rates_.block_bytes);
  const auto swap_out = bytes / rates_.to_host, swap_in = bytes / rates_.to_device;
  const auto recompute = *token * kernels::block_tokens;
  return {.swap_out = swap_out + swap_in < recompute, .swap_in = swap_in < recompute};
}

} // namespace troupe
