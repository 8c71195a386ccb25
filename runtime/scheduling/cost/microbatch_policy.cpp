#include "runtime/scheduling/cost/microbatch_policy.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

namespace {

constexpr double weight_of_last_share = 0.05;
constexpr double worth_a_change = 0.95; // of the time with the present number
// Stages that compute at the same time share memory and caches, which the times of steps that follow each other do not
// show: dividing a batch must promise more than that costs.
constexpr double worth_dividing = 0.8;

} // namespace

microbatch_policy::microbatch_policy(std::int32_t stages, std::int32_t fixed)
  : stages_(stages),
    fixed_(fixed),
    count_(stages == 1   ? 1
             : fixed > 0 ? fixed
                         : stages),
    slowest_(1.0 / std::max(1, stages)) {}

void microbatch_policy::finished(double ms, std::span<const double> stage_ms) {
  if (stage_ms.empty() || !(ms > 0))
    return;
  const auto choosing = std::max(0.0, ms - std::reduce(stage_ms.begin(), stage_ms.end()));
  const auto share = std::clamp(std::max(choosing, std::ranges::max(stage_ms)) / ms, 0.0, 1.0);
  slowest_ += weight_of_last_share * (share - slowest_);
}

// Each microbatch is under way for the time of its step, but the slowest stage serves one after another.
double microbatch_policy::round_ms(const step_cost& cost, const step_shape& decoding, std::int32_t count,
                                   int sequences) const {
  const auto part = 1.0 / std::min(count, sequences);
  const step_shape step{decoding.rows * part, decoding.logit_rows * part, decoding.attended * part,
                        decoding.read * part};
  return cost.expected_ms(step) * std::max(1.0, count * slowest_) * (count == 1 ? worth_dividing : 1);
}

void microbatch_policy::decide(const step_cost& cost, const step_shape& decoding, int sequences, bool prompts) {
  if (fixed_ > 0 || stages_ == 1)
    return;
  // Chunks of prompts that share steps with all sequences would wait for their tokens, too.
  const auto fewest = prompts ? stages_ : 1;
  count_ = std::max(count_, fewest);
  if (sequences == 0 || !cost.known()) {
    count_ = stages_;
    return;
  }
  auto best = count_;
  auto least = worth_a_change * round_ms(cost, decoding, count_, sequences);
  for (auto count = fewest; count <= 2 * stages_; ++count)
    if (const auto ms = round_ms(cost, decoding, count, sequences);
        (count <= stages_ || count <= sequences) && ms < least) {
      best = count;
      least = ms;
    }
  count_ = best;
}

} // namespace troupe
