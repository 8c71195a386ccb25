#include "runtime/scheduling/swap_policy.hpp"

#include <algorithm>

namespace troupe {

namespace {

// What a step counts for when the next has been measured: about the last ten matter.
constexpr double memory = 0.9;

} // namespace

void swap_policy::planned(const step_plan& plan, time_point now) {
  if (rates_.block_bytes == 0)
    return;
  std::size_t of_prompts = 0;
  for (const auto& s : plan.sequences)
    if (s.rows > 1)
      of_prompts += static_cast<std::size_t>(s.rows);
  const auto rows = plan.tokens.size();
  under_way_.push_back({plan.step, rows, of_prompts * 2 > rows && rows >= kernels::block_tokens, now});
}

void swap_policy::finished(std::uint64_t number, time_point now) {
  while (!under_way_.empty() && under_way_.front().number <= number) {
    const auto step = under_way_.front();
    under_way_.pop_front();
    if (step.number == number && step.prefills) {
      // A step that was planned ahead began when the one before it ended.
      const auto began = std::max(step.sent, last_end_);
      seconds_ = seconds_ * memory + std::chrono::duration<double>(now - began).count();
      rows_ = rows_ * memory + static_cast<double>(step.rows);
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
