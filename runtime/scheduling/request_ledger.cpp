#include "runtime/scheduling/request_ledger.hpp"

#include <numeric>

namespace troupe {

namespace {

constexpr auto cause_names = std::to_array<std::string_view>({"decode", "prefill", "blocks", "mask", "judge", "turn",
                                                              "queue", "preempted", "paused", "others_prefill",
                                                              "restart", "transfer", "load", "parse", "write"});
static_assert(cause_names.size() == wait_causes && static_cast<std::size_t>(wait_cause::write) + 1 == wait_causes);

} // namespace

std::string_view name_of(wait_cause what) { return cause_names[static_cast<std::size_t>(what)]; }

double wait_parts::total() const { return std::accumulate(ms.begin(), ms.end(), 0.0); }

void request_ledger::add(wait_parts& to, wait_state of, time_point from, time_point until) {
  if (until <= from)
    return;
  const auto ms = std::chrono::duration<double, std::milli>(until - from).count();
  to[of.what] += ms * (1 - of.others);
  to[wait_cause::others_prefill] += ms * of.others;
}

void request_ledger::pass(time_point now) {
  if (now <= since_)
    return;
  add(parts_, state_, since_, now);
  since_ = now;
}

void request_ledger::enter(wait_state now_in, time_point now) {
  const std::lock_guard lock(mutex_);
  if (ended_ || now_in == state_)
    return;
  pass(now);
  state_ = now_in;
}

void request_ledger::enter(std::uint64_t number, wait_state now_in, time_point now) {
  const std::lock_guard lock(mutex_);
  if (ended_ || number != number_ || now_in == state_)
    return;
  pass(now);
  state_ = now_in;
}

void request_ledger::admit(std::uint64_t number, wait_state now_in, time_point now) {
  const std::lock_guard lock(mutex_);
  if (ended_)
    return;
  pass(now);
  state_ = now_in;
  number_ = number;
}

void request_ledger::close(time_point now) {
  const std::lock_guard lock(mutex_);
  if (!ended_)
    pass(now);
  ended_ = true;
}

request_ledger::look request_ledger::seen(time_point now) const {
  look result;
  result.tokens = tokens_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  result.state = state_;
  result.parts = parts_;
  result.ended = ended_;
  if (!ended_)
    add(result.parts, state_, since_, now);
  return result;
}

} // namespace troupe
