#include "runtime/scheduling/routing/role_balance.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr double little = 0.1; // of the time

std::size_t place_of(replica_role role) { return role == replica_role::decode ? 1 : 0; }

replica_role other(replica_role role) {
  return role == replica_role::decode ? replica_role::prefill : replica_role::decode;
}

std::string seconds(std::chrono::milliseconds time) {
  const auto ms = time.count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

} // namespace

std::string role_change::line(std::chrono::milliseconds idle) const {
  const std::string computes = to == replica_role::decode ? "answers" : "prompts";
  const std::string others = to == replica_role::decode ? "prompts" : "answers";
  const auto who = "replica " + std::to_string(replica) + " computes " + computes;
  switch (why) {
    case reason::idle_while_other_queues:
      return who + " from now on: it had hardly any " + others + " for " + seconds(idle) + ", while " + computes +
        " queued";
    case reason::own_queues: return who + " again: they queue";
    case reason::idle: break;
  }
  return who + " again: there were hardly any " + others + " for it for " + seconds(idle);
}

std::optional<role_change> role_balance::due(std::span<const work> all, time_point now) {
  if (least_.count() <= 0)
    return std::nullopt;
  for (const auto role : {replica_role::prefill, replica_role::decode}) {
    auto& since = queues_since_.at(place_of(role));
    const bool queues = std::ranges::any_of(
      all, [role](const work& w) { return role == replica_role::decode ? w.answers_queue : w.prompts_queue; });
    since = queues ? since.value_or(now) : std::optional<time_point>();
  }
  for (const auto& one : all)
    if (has_work(one, now))
      idle_.insert_or_assign(one.replica, idleness{now, one.prompt_ms});
  for (const auto& one : all)
    if (auto change = change_of(one, now)) {
      idle_.erase(one.replica);
      queues_since_ = {}; // so that not all change for one queue
      return change;
    }
  return std::nullopt;
}

// Now; of prompts, in the time for which it seemed idle, or will have seemed so by when that counts.
bool role_balance::has_work(const work& of, time_point now) const {
  const auto idle = idle_.find(of.replica);
  if (idle == idle_.end())
    return true; // until it is known what there is from now on
  if (of.now == replica_role::decode)
    return of.answers;
  const auto time = std::max<std::chrono::duration<double, std::milli>>(now - idle->second.since, least_);
  return of.prompt_ms - idle->second.prompt_ms > little * time.count();
}

std::optional<role_change> role_balance::change_of(const work& one, time_point now) const {
  using reason = role_change::reason;
  const auto idle = idle_.find(one.replica);
  const bool long_idle = idle != idle_.end() && now - idle->second.since >= least_;
  if (one.now == one.home) {
    if (long_idle && has_queued(other(one.home), least_, now))
      return role_change{one.replica, other(one.home), reason::idle_while_other_queues};
    return std::nullopt;
  }
  if (has_queued(one.home, least_ / 4, now))
    return role_change{one.replica, one.home, reason::own_queues};
  if (long_idle && !queues_since_.at(place_of(one.now)))
    return role_change{one.replica, one.home, reason::idle};
  return std::nullopt;
}

bool role_balance::has_queued(replica_role role, std::chrono::milliseconds time, time_point now) const {
  const auto& since = queues_since_.at(place_of(role));
  return since && now - *since >= time;
}

} // namespace troupe
