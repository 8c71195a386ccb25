#include "runtime/guide/schema/schema_grammar.hpp"

#include "runtime/guide/schema/object_states.hpp"
#include "runtime/guide/schema/plans.hpp"

#include <algorithm>
#include <map>

namespace troupe::guides {

namespace {

class emitter {
public:
  emitter(grammar& g, const json_style& style) : g_(g), style_(style), marks_(punctuation(g.regex(), style.compact)) {}

  rule_id emit(std::vector<value_plan> plans) {
    for (std::size_t i = 0; i < plans.size(); ++i)
      values_.push_back(g_.add_rule());
    for (std::size_t i = 0; i < plans.size(); ++i)
      value(values_[i], std::move(plans[i]));
    return values_.front();
  }

private:
  void value(rule_id rule, value_plan plan) {
    const auto first = g_.add_state(), last = g_.add_state();
    g_.set_start(rule, first);
    g_.edges(last).ends = true;
    if (plan.scalars != no_text)
      g_.edges(first).scans.push_back({plan.scalars, last});
    for (auto& o : plan.objects) {
      const auto r = object(std::move(o));
      g_.edges(first).calls.push_back({r, last});
    }
    for (auto& a : plan.arrays) {
      const auto r = array(std::move(a));
      g_.edges(first).calls.push_back({r, last});
    }
  }

  rule_id object(object_plan plan) {
    const auto open = g_.add_state();
    const auto states = std::make_shared<object_states>(std::move(plan), values_, marks_, style_.any_order);
    const auto source = g_.add_source(states);
    const auto first = states->first(g_, source);
    g_.edges(open).scans.push_back({marks_.open_object, first});
    return rule_from(open);
  }

  rule_id array(array_plan plan) {
    const auto open = g_.add_state();
    if (!plan.contains.empty())
      counting_array(open, plan);
    else {
      const auto states = std::make_shared<array_states>(std::move(plan), values_, marks_);
      const auto source = g_.add_source(states);
      const auto first = states->first(g_, source);
      g_.edges(open).scans.push_back({marks_.open_array, first});
    }
    return rule_from(open);
  }

  rule_id rule_from(rule_state start) {
    const auto rule = g_.add_rule();
    g_.set_start(rule, start);
    return rule;
  }

  /// With `contains`: a state for each number of items and of counted items, as far as they matter.
  void counting_array(rule_state open, const array_plan& plan) {
    const auto cap = std::max<std::uint32_t>(static_cast<std::uint32_t>(plan.first.size()), plan.least);
    const bool bounded = plan.most != no_bound;
    using key = std::vector<std::uint32_t>;                  // items, then counts
    std::map<key, std::pair<rule_state, rule_state>> states; // before an item, behind an item
    std::vector<key> todo;
    const auto end = g_.add_state();
    g_.edges(end).ends = true;
    const auto at = [&](const key& k) {
      const auto [known, fresh] = states.try_emplace(k);
      if (fresh) {
        if (states.size() > 20'000)
          too_large("states of an array with `contains`", 20'000);
        known->second = {g_.add_state(), g_.add_state()};
        g_.edges(known->second.first).tells_apart = plan.differ;
        g_.edges(known->second.second).is_told_apart = plan.differ;
        todo.push_back(k);
      }
      return known->second;
    };
    const auto satisfied = [&](const key& k) {
      bool ok = k[0] >= plan.least;
      for (std::size_t c = 0; c < plan.contains.size(); ++c)
        ok &= k[c + 1] >= plan.contains[c].least;
      return ok;
    };
    const key start(plan.contains.size() + 1);
    if (plan.differ)
      g_.tell_values_apart();
    g_.edges(open).scans.push_back({marks_.open_array, at(start).first});
    if (satisfied(start))
      g_.edges(at(start).first).scans.push_back({marks_.close_first_array, end});
    while (!todo.empty()) {
      const auto k = todo.back();
      todo.pop_back();
      const auto [before, behind] = at(k);
      g_.edges(behind).scans.push_back({marks_.comma, before});
      if (satisfied(k))
        g_.edges(behind).scans.push_back({marks_.close_array, end});
      if (bounded && k[0] >= plan.most)
        continue;
      const auto& item = k[0] < plan.first.size() ? plan.first[k[0]] : plan.rest;
      for (const auto& [set, value] : item) {
        auto next = k;
        next[0] = bounded ? k[0] + 1 : std::min(k[0] + 1, cap);
        bool allowed = true;
        for (std::size_t c = 0; c < plan.contains.size(); ++c)
          if (set >> c & 1) {
            const auto& counted = plan.contains[c];
            allowed &= next[c + 1] < counted.most;
            next[c + 1] = counted.most == no_bound ? std::min(next[c + 1] + 1, counted.least) : next[c + 1] + 1;
          }
        if (allowed)
          g_.edges(before).calls.push_back({values_[value], at(next).second});
      }
    }
  }

  grammar& g_;
  json_style style_;
  json_marks marks_;
  std::vector<rule_id> values_; // their rules
};

} // namespace

rule_id add_schema(grammar& g, std::string_view schema, const json_style& style, const guide_limits& limits) {
  schema_document doc(schema);
  schema_planner planner(doc, g.regex(), limits, style);
  const auto value = emitter(g, style).emit(planner.plan());
  if (!g.tells_values_apart())
    return value;
  const auto whole = g.add_rule();
  const auto first = g.add_state(), last = g.add_state();
  g.edges(first).begins_values = true;
  g.edges(first).calls.push_back({value, last});
  g.edges(last).ends = true;
  g.set_start(whole, first);
  return whole;
}

} // namespace troupe::guides
