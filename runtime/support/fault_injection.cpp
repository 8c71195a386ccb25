#include "runtime/support/fault_injection.hpp"

#include <algorithm>
#include <mutex>

namespace troupe {

namespace {

struct shared_plan {
  std::mutex mutex;
  fault_plan plan;
};

shared_plan& plan_of_process() {
  static shared_plan made;
  return made;
}

/// Splitmix64 (Steele, Lea, Flood 2014).
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr std::uint64_t least_bytes = 64, most_bytes = 8 << 10; // of a handler that runs out of memory

} // namespace

std::atomic<bool> fault_injection::armed_ = false;

fault_plan::fault_plan(const std::vector<fault_rule>& rules, clock::time_point now) {
  for (const auto& rule : rules) {
    auto& one = armed_.emplace_back(armed_rule{rule});
    one.rule.struck = 0;
    wait_again(one, now);
  }
}

std::uint64_t fault_plan::draw(armed_rule& of) { return mixed(of.rule.seed ^ mixed(++of.drawn)); }

void fault_plan::wait_again(armed_rule& one, clock::time_point now) {
  const auto distance = [&](std::uint64_t mean) {
    return one.rule.seed == 0 ? mean : (mean + 1) / 2 + draw(one) % (mean + 1 - mean % 2);
  };
  one.left = std::max<std::uint64_t>(1, distance(one.rule.every_passages));
  const auto wait = distance(static_cast<std::uint64_t>(std::chrono::microseconds(one.rule.every).count()));
  one.due = now + std::chrono::microseconds(wait);
}

std::optional<struck_fault> fault_plan::pass(std::string_view kind, int replica, int stage, clock::time_point now) {
  for (auto& one : armed_) {
    auto& rule = one.rule;
    if (rule.struck >= rule.count || rule.kind != kind || (rule.replica >= 0 && rule.replica != replica) ||
        (rule.stage >= 0 && rule.stage != stage))
      continue;
    if (rule.every_passages > 0 ? --one.left > 0 : now < one.due)
      continue;
    ++rule.struck;
    wait_again(one, now);
    return struck_fault{rule.what, rule.pause,
                        rule.what == fault_rule::effect::out_of_memory
                          ? static_cast<std::size_t>(least_bytes + draw(one) % (most_bytes - least_bytes))
                          : 0};
  }
  return std::nullopt;
}

std::vector<fault_rule> fault_plan::rules() const {
  std::vector<fault_rule> all;
  for (const auto& one : armed_)
    all.push_back(one.rule);
  return all;
}

std::vector<fault_rule> fault_injection::set(const std::vector<fault_rule>& rules) {
  auto& its = plan_of_process();
  const std::lock_guard lock(its.mutex);
  auto before = its.plan.rules();
  its.plan = fault_plan(rules, fault_plan::clock::now());
  armed_ = !rules.empty();
  return before;
}

std::vector<fault_rule> fault_injection::rules() {
  auto& its = plan_of_process();
  const std::lock_guard lock(its.mutex);
  return its.plan.rules();
}

std::optional<struck_fault> fault_injection::pass(std::string_view kind, int replica, int stage) {
  auto& its = plan_of_process();
  const std::lock_guard lock(its.mutex);
  return its.plan.pass(kind, replica, stage, fault_plan::clock::now());
}

} // namespace troupe
