#include "runtime/scheduling/routing/load_reporter.hpp"

#include "runtime/scheduling/planning/scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace troupe {

namespace {

constexpr auto usual_interval = std::chrono::milliseconds(50);

// Parts of all slots, and of all blocks, that are no trifle.
constexpr std::int32_t slot_parts = 8, block_parts = 16;

bool is_idle(const load_report& r) { return r.running + r.waiting == 0; }

} // namespace

load_reporter::load_reporter(int replica, std::uint64_t life, std::int32_t blocks)
  : replica_(replica), life_(life), blocks_(blocks), free_blocks_(blocks) {}

void load_reporter::granted(const block_grant& grant) {
  free_blocks_ = grant.free_blocks;
  cached_blocks_ = grant.cached_blocks;
}

bool load_reporter::is_due(const load_report& now, time_point at) const {
  const auto available = [](const load_report& r) { return r.free_blocks + r.cached_blocks; };
  const bool unchanged = received_.empty() && now.running == last_.running && now.waiting == last_.waiting &&
    now.prompts.rows == last_.prompts.rows && available(now) == available(last_) &&
    now.generated_tokens == last_.generated_tokens;
  if (unchanged)
    return false;
  const auto slots = now.running + now.free_slots;
  return at - sent_ >= usual_interval || is_idle(now) != is_idle(last_) ||
    std::abs(now.running - last_.running) >= std::max(1, slots / slot_parts) ||
    std::abs(now.prompts.rows - last_.prompts.rows) >= now.step_rows ||
    std::abs(available(now) - available(last_)) >= std::max(1, blocks_ / block_parts);
}

std::optional<load_report> load_reporter::due(scheduler& of, time_point now) {
  auto report = of.load();
  report.replica = replica_;
  report.life = life_;
  report.free_blocks = free_blocks_;
  report.cached_blocks = cached_blocks_;
  if (!is_due(report, now))
    return std::nullopt;
  last_ = report;
  sent_ = now;
  report.received = std::exchange(received_, {});
  report.ended = of.take_ended();
  of.add_lengths(report);
  return report;
}

} // namespace troupe
