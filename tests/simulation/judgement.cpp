#include "tests/simulation/judgement.hpp"

#include "tests/simulation/templates.hpp"
#include "tests/simulation/variants.hpp"
#include "tests/simulation/world.hpp"

#include <chrono>
#include <cmath>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

namespace troupe::simulation {

namespace {

std::string text_of(const testing::heard& what) {
  std::ostringstream text;
  for (const auto& [index, ids] : what.ids) {
    text << " [" << index << "]";
    for (const auto id : ids)
      text << ' ' << id;
  }
  return text.str();
}

/// Why this error is no fault of the engine; empty: it is.
bool is_explained(const error& why, const client& c, const scenario& s, const happened& what) {
  if (what.engine_died || c.threw || c.left)
    return true;
  if (!what.dead_requests.empty() && (c.request_id == 0 || what.dead_requests.contains(c.request_id)))
    return true;
  const int faults = what.exceptions + what.kills + what.refusals;
  if (faults > 0 && !what.ready) // what cannot be loaded at first is not tried again
    return true;
  if (faults > 0 && why.param == "search" && wants_judge(*c.asked)) // the judge has failed, not the search
    return true;
  switch (why.code) {
    case errc::timeout: return c.plan.timeout_ms > 0;
    case errc::not_found: return s.swap_every > 0 && names_adapter(*c.asked);
    case errc::overloaded:
      return s.limits.max_queue < 100 || !c.plan.deeds.empty() || (why.retry_ms > 0 && c.plan.timeout_ms > 0);
    case errc::out_of_memory: return what.refusals > 0;
    case errc::poisoned: return what.exceptions + what.refusals >= 2;
    case errc::unavailable: return faults >= 3;
    case errc::internal: // "request lost" needs no memory
      return what.refusals > 0 && (c.heard.what().ids.empty() || why.message == "request lost");
    case errc::device: return what.lost_devices > 0 && faults >= s.replicas; // others may never have started
    case errc::cancelled: return c.cancelled;
    default: return false;
  }
}

/// What is wrong with the account of its time; empty: nothing.
std::string judge_time(const client& c, const scenario& s, const happened& what) {
  const auto& done = *c.heard.what().done;
  const auto total = done.spent.total();
  const auto told = [&](const std::string& wrong) {
    std::ostringstream text;
    text << wrong << ':';
    for (std::size_t i = 0; i < wait_causes; ++i)
      if (done.spent.ms[i] != 0)
        text << ' ' << name_of(static_cast<wait_cause>(i)) << ' ' << done.spent.ms[i];
    text << ", in all " << total << " of " << done.total_ms << " ms";
    return text.str();
  };
  for (const auto ms : done.spent.ms)
    if (ms < 0)
      return told("a negative part");
  if (std::abs(total - done.total_ms) > 1e-6)
    return told("the parts of its time are not the whole");
  const auto heard = std::chrono::duration<double, std::milli>(c.ended_at - c.asked_at).count();
  if (c.plan.is_actor ? done.total_ms > heard + 1e-6 : std::abs(done.total_ms - heard) > 1e-6)
    return told("its client waited for " + std::to_string(heard) + " ms");
  const auto only = [&](wait_cause which, bool may) { return may || done.spent[which] == 0; };
  const bool died = what.exceptions + what.kills + what.refusals > 0;
  const bool pauses = std::ranges::any_of(
    c.plan.deeds, [](const client_deed& deed) { return deed.what == client_deed::kind::pause; });
  if (!only(wait_cause::load, false) || !only(wait_cause::parse, false) || !only(wait_cause::write, false) ||
      !only(wait_cause::restart, died) || !only(wait_cause::paused, pauses) ||
      !only(wait_cause::judge, wants_judge(*c.asked)) || !only(wait_cause::transfer, s.disk || s.roles))
    return told("a part of its time has a cause that it cannot have");
  const bool alone = s.clients.size() == 1 && !died && !pauses;
  if (alone && (done.spent[wait_cause::others_prefill] != 0 || done.spent[wait_cause::preempted] != 0))
    return told("it waited for others, and there are none");
  return {};
}

/// What is wrong beside what its request answers alone; empty: nothing.
std::string compare(const client& c, const scenario& s, const happened& what, const testing::heard& expected) {
  const auto& heard = c.heard.what();
  const auto ended_by = [&](finish_reason why) {
    return std::ranges::any_of(heard.finish, [=](const auto& f) { return f.second == why; });
  };
  const bool timed_out = ended_by(finish_reason::timeout) && c.plan.timeout_ms > 0;
  // Candidates are ranked when all are final; of one that was ended early, those count that were.
  if ((c.cancelled || c.finished || heard.failed || c.plan.timeout_ms > 0) &&
      c.asked->sampling.best_of > c.asked->sampling.n)
    return heard.done || is_explained(*heard.failed, c, s, what) ? "" : "it failed: " + heard.failed->message;
  if (heard.failed) {
    if (expected.failed && // a sentence ends where there is no memory for more
        (what.refusals > 0 ? expected.failed->message.starts_with(heard.failed->message)
                           : expected.failed->message == heard.failed->message))
      return {};
    if (!is_explained(*heard.failed, c, s, what))
      return "request " + std::to_string(c.plan.request) + " failed: " + heard.failed->message;
    return begins(heard, expected) ? ""
                                   : "before it failed, other tokens:" + text_of(heard) + ", alone" + text_of(expected);
  }
  const bool cut = timed_out || (c.finished && ended_by(finish_reason::stop)) ||
    (ended_by(finish_reason::cancelled) && (c.cancelled || c.left));
  if (cut)
    return c.plan.request >= 0 && (begins(heard, expected) || generation_of(c.plan).sampling.ranked())
      ? ""
      : "before it was ended, other tokens:" + text_of(heard) + ", alone" + text_of(expected);
  if (!same(heard, expected))
    return "request " + std::to_string(c.plan.request) + " answered" + text_of(heard) + ", alone" + text_of(expected);
  return {};
}

} // namespace

const testing::heard& alone(int request, bool recurrent, int stages, int version) {
  static std::map<std::tuple<int, bool, int, int>, testing::heard> known;
  if (!names_adapter(request_of(request)))
    version = 0;
  const auto found = known.find({request, recurrent, stages, version});
  if (found != known.end())
    return found->second;
  const auto s = calm_scenario(request, recurrent, stages, version);
  auto result = simulate(s, false, nullptr);
  if (!result.trouble.empty())
    throw std::runtime_error("request " + std::to_string(request) + " alone: " + result.trouble);
  return known.emplace(std::tuple(request, recurrent, stages, version), std::move(result.first)).first->second;
}

std::string judge(const client& c, const scenario& s, const happened& what) {
  if (!c.heard.trouble().empty())
    return c.heard.trouble();
  const auto& heard = c.heard.what();
  if (c.refused)
    return what.engine_died || what.refusals > 0 || !what.dead_requests.empty() ? "" : "its submission was refused";
  if (!heard.done && !heard.failed)
    return "it got no last event";
  if (heard.done)
    if (auto wrong = judge_time(c, s, what); !wrong.empty())
      return wrong;
  if (s.calm)
    return {};
  auto wrong = compare(c, s, what, alone(c.plan.request, s.recurrent, s.stages, s.first_version));
  // It has the adapter that had the name when it was checked, to its end.
  if (!wrong.empty() && s.swap_every > 0 && names_adapter(*c.asked))
    for (int version = 0; version < adapter_versions; ++version)
      if (compare(c, s, what, alone(c.plan.request, s.recurrent, s.stages, version)).empty())
        return {};
  return wrong;
}

} // namespace troupe::simulation
