#include "api/openai/fields/known_fields.hpp"
#include "api/server/answers/answers.hpp"
#include "runtime/support/fault_injection.hpp"
#include "runtime/support/json/json_object.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace troupe {

namespace {

constexpr std::size_t most_rules = 32;
constexpr std::int64_t longest_period = 3'600'000, longest_pause = 1000; // ms
constexpr std::int64_t most_strikes = 1'000'000'000, largest_seed = INT64_MAX;
constexpr auto rule_fields = std::to_array<std::string_view>(
  {"kind", "what", "replica", "stage", "every_ms", "every_messages", "count", "seed", "pause_ms"});

using effect = fault_rule::effect;
struct effect_name {
  std::string_view name;
  effect what;
};
constexpr auto effect_names = std::to_array<effect_name>({{"exception", effect::exception},
                                                          {"kill", effect::kill},
                                                          {"out_of_memory", effect::out_of_memory},
                                                          {"delay", effect::delay}});

void require_allowed(const call& c) {
  if (!c.fault_injection)
    throw failure(errc::not_found, "this server injects no faults: it was started without --fault-injection");
}

bool has_actors(std::string_view kind) { return kind != "disk" && kind != "socket"; }

/// Kinds of actors that there have been by now.
std::set<std::string> kinds_of(const call& c) {
  std::set<std::string> all{"disk", "socket"};
  for (const auto& each : c.engine.look().actors)
    all.insert(each.kind);
  return all;
}

fault_rule read_rule(const field_reader& from, const std::set<std::string>& kinds) {
  notes_on_members(from, unknown_fields::reject, rule_fields);
  fault_rule rule;
  rule.kind = from.text("kind").value_or("");
  if (!kinds.contains(rule.kind)) {
    std::string known;
    for (const auto& one : kinds)
      known += (known.empty() ? "" : ", ") + one;
    from.refuse("kind", "must be one of those that are there: " + known);
  }
  const auto what = from.text("what");
  if (!has_actors(rule.kind)) {
    if (what)
      from.refuse("what", "must be left out, as a " + rule.kind + " only refuses");
    rule.what = effect::refusal;
  } else if (what) {
    const auto found = std::ranges::find(effect_names, *what, &effect_name::name);
    if (found == effect_names.end())
      from.refuse("what", "must be exception, kill, out_of_memory or delay");
    rule.what = found->what;
  }
  rule.replica = from.integer("replica", 0, 1023, -1);
  rule.stage = from.integer("stage", 0, 1023, -1);
  rule.every = std::chrono::milliseconds(from.integer("every_ms", 1, longest_period).value_or(0));
  rule.every_passages = static_cast<std::uint64_t>(from.integer("every_messages", 1, most_strikes).value_or(0));
  if ((rule.every.count() > 0) == (rule.every_passages > 0))
    from.refuse("every_ms", "or `every_messages` must be given, and not both");
  rule.count = static_cast<std::uint64_t>(from.integer("count", 1, most_strikes).value_or(1));
  rule.seed = static_cast<std::uint64_t>(from.integer("seed", 0, largest_seed).value_or(0));
  rule.pause = std::chrono::milliseconds(from.integer("pause_ms", 1, longest_pause).value_or(0));
  if ((rule.what == effect::delay) != (rule.pause.count() > 0))
    from.refuse("pause_ms", "must be given for a delay, and for nothing else");
  return rule;
}

std::string told(const std::vector<fault_rule>& rules) {
  std::vector<std::string> all;
  for (const auto& rule : rules) {
    json_object one;
    one.text("kind", rule.kind);
    if (const auto its = std::ranges::find(effect_names, rule.what, &effect_name::what); its != effect_names.end())
      one.text("what", its->name);
    all.push_back(one.number("count", rule.count).number("struck", rule.struck).str());
  }
  return json_object().raw("faults", json_list(all)).str();
}

} // namespace

reply tell_faults(const call& c) {
  require_allowed(c);
  return reply::json(told(fault_injection::rules()));
}

reply set_faults(const call& c) {
  require_allowed(c);
  const auto document = json::document::parse(c.body, "the body", errc::bad_request);
  const field_reader body(document.root());
  const auto list = body.list("faults", most_rules);
  if (!list)
    body.refuse("faults", "must be a list of faults; an empty one ends them");
  std::vector<fault_rule> rules;
  const auto kinds = list->size() > 0 ? kinds_of(c) : std::set<std::string>();
  for (const auto one : *list)
    rules.push_back(read_rule(field_reader(one, "faults[" + std::to_string(rules.size()) + "]"), kinds));
  return reply::json(told(fault_injection::set(rules)));
}

} // namespace troupe
