#include "tests/simulation/judgement.hpp"

#include "tests/simulation/templates.hpp"
#include "tests/simulation/world.hpp"

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
    case errc::overloaded: return s.limits.max_queue < 100 || !c.plan.deeds.empty();
    case errc::out_of_memory: return what.refusals > 0;
    case errc::poisoned: return what.exceptions + what.refusals >= 2;
    case errc::unavailable: return faults >= 3;
    case errc::internal: return what.refusals > 0 && c.heard.what().ids.empty();
    case errc::device: return what.lost_devices >= s.replicas;
    case errc::cancelled: return c.cancelled;
    default: return false;
  }
}

} // namespace

const testing::heard& alone(int request, bool recurrent, int stages) {
  static std::map<std::tuple<int, bool, int>, testing::heard> known;
  const auto found = known.find({request, recurrent, stages});
  if (found != known.end())
    return found->second;
  const auto s = calm_scenario(request, recurrent, stages);
  auto result = simulate(s, false, nullptr);
  if (!result.trouble.empty())
    throw std::runtime_error("request " + std::to_string(request) + " alone: " + result.trouble);
  return known.emplace(std::tuple(request, recurrent, stages), std::move(result.first)).first->second;
}

std::string judge(const client& c, const scenario& s, const happened& what) {
  if (!c.heard.trouble().empty())
    return c.heard.trouble();
  const auto& heard = c.heard.what();
  if (c.refused)
    return what.engine_died || what.refusals > 0 || !what.dead_requests.empty() ? "" : "its submission was refused";
  if (!heard.done && !heard.failed)
    return "it got no last event";
  if (s.calm)
    return {};
  const auto& expected = alone(c.plan.request, s.recurrent, s.stages);
  // Candidates are ranked when all are final; of one that was ended early, those count that were.
  if ((c.cancelled || heard.failed) && c.asked->sampling.best_of > c.asked->sampling.n)
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
  const bool cut = std::ranges::any_of(heard.finish,
                                       [](const auto& f) { return f.second == finish_reason::cancelled; }) &&
    (c.cancelled || c.left);
  if (cut)
    return c.plan.request >= 0 && (begins(heard, expected) || generation_of(c.plan).sampling.ranked())
      ? ""
      : "before it was cancelled, other tokens:" + text_of(heard) + ", alone" + text_of(expected);
  if (!same(heard, expected))
    return "request " + std::to_string(c.plan.request) + " answered" + text_of(heard) + ", alone" + text_of(expected);
  return {};
}

} // namespace troupe::simulation
