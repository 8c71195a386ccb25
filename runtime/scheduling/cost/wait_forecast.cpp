#include "runtime/scheduling/cost/wait_forecast.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace troupe {

namespace {

/// When slots are free, in tokens of answers from now on.
class slot_times {
public:
  explicit slot_times(const queue_outlook& at) {
    for (const auto tokens : at.left)
      free_.push(std::max(0.0, tokens));
    while (free_.size() < static_cast<std::size_t>(std::max(1, at.slots)))
      free_.push(0);
  }

  /// The first time at which as many are free as `its` needs, which has them until its answer ends.
  double take(const expected_work& its) {
    const auto needed = std::clamp<std::size_t>(static_cast<std::size_t>(std::max(1, its.slots)), 1, free_.size());
    double start = 0;
    for (std::size_t i = 0; i < needed; ++i) {
      start = free_.top();
      free_.pop();
    }
    for (std::size_t i = 0; i < needed; ++i)
      free_.push(start + its.answer);
    return start;
  }

private:
  std::priority_queue<double, std::vector<double>, std::greater<>> free_;
};

} // namespace

wait_forecast forecast(const queue_outlook& at, const expected_work& own) {
  slot_times slots(at);
  auto prompts = at.prompts;
  for (const auto& one : at.ahead) {
    slots.take(one);
    prompts += one.prompt;
  }
  const auto tokens = slots.take(own);
  const auto running = std::min<double>(std::max(1, at.slots),
                                        static_cast<double>(at.left.size() + at.ahead.size()) + 1);
  wait_forecast result;
  result.token_ms = decode_ms(at.pace, running, 0);
  const auto prefill = [&](const step_shape& what) { return what.rows > 0 ? prefill_ms(at.pace, what) : 0; };
  result.start_ms = tokens * result.token_ms + prefill(prompts);
  result.first_token_ms = tokens * result.token_ms + prefill(prompts + own.prompt);
  return result;
}

} // namespace troupe
