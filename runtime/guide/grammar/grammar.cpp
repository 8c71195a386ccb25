#include "runtime/guide/grammar/grammar.hpp"

#include <algorithm>

namespace troupe::guides {

rule_id grammar::add_rule() {
  if (rules_.size() >= limits_.rules)
    too_large("rules", limits_.rules);
  rules_.push_back(none);
  return static_cast<rule_id>(rules_.size() - 1);
}

rule_state grammar::add_state() {
  if (states_.size() >= limits_.rules)
    too_large("states of rules", limits_.rules);
  states_.emplace_back();
  open_.emplace_back();
  return static_cast<rule_state>(states_.size() - 1);
}

std::uint32_t grammar::add_source(std::shared_ptr<const state_source> source) {
  sources_.push_back(std::move(source));
  return static_cast<std::uint32_t>(sources_.size() - 1);
}

rule_state grammar::lazy_state(std::uint32_t source, std::span<const std::uint32_t> key) {
  std::uint64_t hash = source;
  for (const auto k : key)
    hash = hash_mix(hash, k);
  // The key stays beside a state that has been made; `source` does not, so the source is the key's first word.
  return lazy_.find_or_add(
    hash,
    [&](std::uint32_t id) {
      const auto& s = states_[id];
      const auto stored = std::span(keys_).subspan(s.key, s.key_count);
      return stored.front() == source && std::ranges::equal(stored.subspan(1), key);
    },
    [&] {
      if (states_.size() >= limits_.rules)
        too_large("states of rules", limits_.rules);
      state s;
      s.source = source;
      s.key = static_cast<std::uint32_t>(keys_.size());
      s.key_count = static_cast<std::uint32_t>(key.size() + 1);
      keys_.push_back(source);
      keys_.insert(keys_.end(), key.begin(), key.end());
      states_.push_back(s);
      if (!finished_)
        open_.emplace_back();
      return static_cast<rule_state>(states_.size() - 1);
    });
}

void grammar::make(rule_state s) {
  const auto source = sources_[states_[s].source];
  const auto stored = std::span(keys_).subspan(states_[s].key + 1, states_[s].key_count - 1);
  const std::vector<std::uint32_t> key(stored.begin(), stored.end());
  define(s, source->expand(*this, key));
}

void grammar::define(rule_state s, const rule_edges& edges) {
  meter::charge(2 + edges.scans.size() + edges.calls.size() + edges.skips.size());
  std::vector<tagged_expression> scans;
  for (std::size_t i = 0; i < edges.scans.size(); ++i)
    scans.push_back({static_cast<std::uint32_t>(i), edges.scans[i].match});
  const auto scanner = scans.empty() ? dead_lexer : lexer_.start(scans);
  auto& st = states_[s];
  st.scanner = scanner;
  st.targets = static_cast<std::uint32_t>(targets_.size());
  for (const auto& e : edges.scans)
    targets_.push_back(e.to);
  st.calls = static_cast<std::uint32_t>(calls_.size());
  st.call_count = static_cast<std::uint32_t>(edges.calls.size());
  calls_.insert(calls_.end(), edges.calls.begin(), edges.calls.end());
  st.skips = static_cast<std::uint32_t>(skips_.size());
  st.skip_count = static_cast<std::uint32_t>(edges.skips.size());
  skips_.insert(skips_.end(), edges.skips.begin(), edges.skips.end());
  st.ends = edges.ends;
  st.returns = edges.ends && edges.calls.empty() && edges.skips.empty() && scanner == dead_lexer;
  st.tells_apart = edges.tells_apart;
  st.is_told_apart = edges.is_told_apart;
  st.begins_values = edges.begins_values;
  st.source = none;
}

/// Whether the rule's end can be reached from each state. Least fixed point, linear in the edges: whenever a state
/// becomes productive, the edges that wait for it are looked at again.
std::vector<bool> grammar::productive() const {
  std::vector<bool> good(states_.size()), rule_good(rules_.size());
  struct waiting {
    rule_state from;
    rule_id rule; // also needed; none
    rule_state to;
  };
  std::vector<std::vector<waiting>> by_state(states_.size()), by_rule(rules_.size());
  std::vector<std::vector<rule_id>> starts(states_.size());
  std::vector<rule_state> fresh;
  const auto mark = [&](rule_state s) {
    if (!good[s]) {
      good[s] = true;
      fresh.push_back(s);
    }
  };
  for (rule_id r = 0; r < rules_.size(); ++r)
    if (rules_[r] != none)
      starts[rules_[r]].push_back(r);
  for (rule_state s = 0; s < states_.size(); ++s) {
    if (states_[s].source != none || open_[s].ends)
      mark(s);
    for (const auto& e : open_[s].scans)
      by_state[e.to].push_back({s, none, e.to});
    for (const auto to : open_[s].skips)
      by_state[to].push_back({s, none, to});
    for (const auto& e : open_[s].calls) {
      by_state[e.to].push_back({s, e.rule, e.to});
      by_rule[e.rule].push_back({s, e.rule, e.to});
    }
  }
  while (!fresh.empty()) {
    const auto s = fresh.back();
    fresh.pop_back();
    meter::charge(1 + by_state[s].size());
    for (const auto& w : by_state[s])
      if (w.rule == none || rule_good[w.rule])
        mark(w.from);
    for (const auto r : starts[s]) {
      if (rule_good[r])
        continue;
      rule_good[r] = true;
      meter::charge(1 + by_rule[r].size());
      for (const auto& w : by_rule[r])
        if (good[w.to])
          mark(w.from);
    }
  }
  return good;
}

void grammar::finish() {
  for (auto& e : open_) {
    meter::charge(1 + e.scans.size());
    std::erase_if(e.scans, [&](const auto& s) { return !regex().alive(s.match); });
  }
  const auto good = productive();
  if (rules_.empty() || rules_[root_] == none || !good[rules_[root_]])
    throw failure(errc::bad_request, "the guide allows no text at all");
  for (rule_state s = 0; s < open_.size(); ++s) {
    if (states_[s].source != none)
      continue;
    auto& e = open_[s];
    meter::charge(1 + e.scans.size() + e.skips.size() + e.calls.size());
    std::erase_if(e.scans, [&](const auto& x) { return !good[x.to]; });
    std::erase_if(e.skips, [&](auto to) { return !good[to]; });
    std::erase_if(e.calls,
                  [&](const auto& x) { return !good[x.to] || rules_[x.rule] == none || !good[rules_[x.rule]]; });
    define(s, e);
  }
  open_.clear();
  finished_ = true;
}

} // namespace troupe::guides
