#include "runtime/guide/schema/object_states.hpp"

#include "runtime/guide/regex/pattern.hpp"

#include <algorithm>

namespace troupe::guides {

json_marks punctuation(expressions& regex, bool compact) {
  // Bounded: small models write white space for ever where they may.
  const auto space = compact ? empty_text : whole_pattern(regex, "( |\\r?\\n[ \\t]{0,24})?");
  const auto mark = [&](const char* c, bool before, bool behind) {
    return regex.concat({before ? space : empty_text, regex.literal(c), behind ? space : empty_text});
  };
  return {mark(":", true, true),   mark(",", true, true),  mark("{", false, true), mark("}", true, false),
          mark("}", false, false), mark("[", false, true), mark("]", true, false), mark("]", false, false)};
}

// -- objects --------------------------------------------------------------------

object_states::object_states(object_plan plan, const std::vector<rule_id>& values, const json_marks& marks,
                             bool any_order)
  : plan_(std::move(plan)), marks_(marks), any_order_(any_order) {
  for (const auto& m : plan_.members) {
    rules_.push_back(values[m.value]);
    meeting_.emplace_back();
    for (const auto& way : m.meets)
      meeting_.back().push_back(values[way.value]);
  }
  for (const auto& e : plan_.extras)
    rules_.push_back(values[e.value]);
  required_.resize(plan_.members.size() + 1);
  for (auto m = plan_.members.size(); m-- > 0;)
    required_[m] = required_[m + 1] + plan_.members[m].required;
  counts_ = plan_.least > 0 || plan_.most != no_bound;
}

rule_state object_states::first(grammar& g, std::uint32_t self) {
  self_ = self;
  const auto add = [&](expression key) { keys_.push_back(plan_.distinct ? key : g.regex().concat(key, marks_.colon)); };
  for (const auto& m : plan_.members)
    add(m.key);
  for (const auto& e : plan_.extras)
    add(e.key);
  if (plan_.distinct)
    g.tell_values_apart();
  progress p;
  p.unmet = plan_.needs;
  if (any_order_)
    p.used.resize((plan_.members.size() + 31) / 32);
  return state(g, before_first_key, p);
}

rule_state object_states::state(grammar& g, role r, const progress& p, std::uint32_t value) const {
  std::vector<std::uint32_t> key{r, value, p.next, p.count, p.unmet};
  key.insert(key.end(), p.used.begin(), p.used.end());
  return g.lazy_state(self_, key);
}

bool object_states::used(const progress& p, std::size_t member) const {
  return any_order_ ? (p.used[member / 32] >> (member % 32) & 1) != 0 : member < p.next;
}

/// Members that have not been written.
object_states::counts object_states::left(const progress& p) const {
  if (!any_order_)
    return {required_[p.next], plan_.members.size() - p.next};
  meter::charge(plan_.members.size());
  counts result;
  for (std::size_t m = 0; m < plan_.members.size(); ++m)
    if (!used(p, m)) {
      result.required += plan_.members[m].required;
      ++result.all;
    }
  return result;
}

/// Whether the object can be completed from here: what is required still fits, and enough can come.
bool object_states::may_go_on(const progress& p) const {
  if (!counts_ && p.unmet == 0)
    return true;
  const auto [required, possible] = left(p);
  if (counts_ && (p.count + required > plan_.most || (plan_.extras.empty() && p.count + possible < plan_.least)))
    return false;
  if (p.unmet == 0)
    return true;
  const auto more = members_to_complete(
    plan_, p.unmet, [&](std::size_t m) { return !used(p, m); }, [](value_id) { return true; });
  return more != no_bound && (plan_.most == no_bound || p.count + more <= plan_.most);
}

bool object_states::may_close(const progress& p) const {
  if ((counts_ && p.count < plan_.least) || left(p).required != 0)
    return false;
  auto unmet = p.unmet;
  for (std::size_t m = 0; unmet != 0 && m < plan_.members.size(); ++m)
    if (!used(p, m))
      unmet &= ~plan_.members[m].absent;
  return unmet == 0;
}

/// A key, if the object can be completed behind it and its value.
void object_states::key(grammar& g, std::size_t i, const progress& next, rule_id value, rule_edges& out) const {
  if (may_go_on(next))
    out.scans.push_back({keys_[i], state(g, plan_.distinct ? behind_key : before_value, next, value)});
}

void object_states::keys(grammar& g, const progress& p, rule_edges& out) const {
  const auto most = static_cast<std::uint32_t>(plan_.members.size());
  const auto counted = [&](std::uint32_t n) { return counts_ ? n + 1 : 0; };
  meter::charge(most);
  out.tells_apart = plan_.distinct;
  bool owed = false;                 // a required member comes first
  object_plan::need_set skipped = 0; // met by members that are left out
  for (std::uint32_t m = 0; m < most && !owed; ++m) {
    if (used(p, m))
      continue;
    auto next = p;
    next.count = counted(p.count);
    if (any_order_)
      next.used[m / 32] |= std::uint32_t(1) << (m % 32);
    else {
      next.next = m + 1;
      owed = plan_.members[m].required;
      next.unmet &= ~skipped;
      skipped |= plan_.members[m].absent;
    }
    key(g, m, next, rules_[m], out);
    for (std::size_t w = 0; w < plan_.members[m].meets.size(); ++w)
      if (const auto met = plan_.members[m].meets[w].needs; (met & p.unmet) != 0) {
        auto meeting = next;
        meeting.unmet &= ~met;
        key(g, m, meeting, meeting_[m][w], out);
      }
  }
  if (owed)
    return;
  for (std::uint32_t e = 0; e < plan_.extras.size(); ++e) {
    const auto met = plan_.extras[e].meets;
    if (met != 0 && (met & p.unmet) == 0)
      continue;
    auto next = p;
    next.unmet &= ~met;
    next.count = counted(p.count);
    if (plan_.most == no_bound)
      next.count = std::min(next.count, plan_.least);
    if (!any_order_) {
      next.next = most;
      next.unmet &= ~skipped;
    }
    key(g, most + e, next, rules_[most + e], out);
  }
}

rule_edges object_states::expand(grammar& g, std::span<const std::uint32_t> key) const {
  const auto r = static_cast<role>(key[0]);
  const auto value = key[1];
  const progress p{key[2], key[3], key[4], {key.begin() + 5, key.end()}};
  rule_edges out;
  switch (r) {
    case before_first_key:
      if (may_close(p))
        out.scans.push_back({marks_.close_first_object, state(g, done, {})});
      keys(g, p, out);
      break;
    case before_key: keys(g, p, out); break;
    case behind_key:
      out.is_told_apart = true;
      out.scans.push_back({marks_.colon, state(g, before_value, p, value)});
      break;
    case before_value: out.calls.push_back({value, state(g, behind_value, p)}); break;
    case behind_value: {
      rule_edges more;
      keys(g, p, more);
      if (!more.scans.empty())
        out.scans.push_back({marks_.comma, state(g, before_key, p)});
      if (may_close(p))
        out.scans.push_back({marks_.close_object, state(g, done, {})});
      break;
    }
    case done: out.ends = true; break;
  }
  return out;
}

// -- arrays -----------------------------------------------------------------------

array_states::array_states(array_plan plan, const std::vector<rule_id>& values, const json_marks& marks)
  : plan_(std::move(plan)), rest_(values[plan_.rest.front().value]), marks_(marks) {
  for (const auto& i : plan_.first)
    first_.push_back(values[i.front().value]);
}

rule_state array_states::first(grammar& g, std::uint32_t self) {
  self_ = self;
  if (plan_.differ)
    g.tell_values_apart();
  return state(g, before_first_item, 0, 0);
}

rule_state array_states::state(grammar& g, role r, std::uint32_t count, std::uint64_t used) const {
  if (plan_.most == no_bound) // beyond this, the number does not matter
    count = std::min(count, std::max(plan_.least, static_cast<std::uint32_t>(first_.size())));
  const std::uint32_t key[] = {r, count, static_cast<std::uint32_t>(used), static_cast<std::uint32_t>(used >> 32)};
  return g.lazy_state(self_, key);
}

rule_edges array_states::expand(grammar& g, std::span<const std::uint32_t> key) const {
  const auto r = static_cast<role>(key[0]);
  const auto count = key[1];
  const auto used = key[2] | std::uint64_t(key[3]) << 32;
  rule_edges out;
  switch (r) {
    case before_first_item:
      if (plan_.least == 0)
        out.scans.push_back({marks_.close_first_array, state(g, done, 0, 0)});
      [[fallthrough]];
    case before_item:
      out.tells_apart = plan_.differ;
      if (count >= plan_.most)
        break;
      for (std::size_t i = 0; i < plan_.distinct.size(); ++i)
        if ((used >> i & 1) == 0)
          out.scans.push_back({plan_.distinct[i], state(g, behind_item, count + 1, used | std::uint64_t(1) << i)});
      if (plan_.distinct.empty())
        out.calls.push_back({count < first_.size() ? first_[count] : rest_, state(g, behind_item, count + 1, 0)});
      break;
    case behind_item:
      out.is_told_apart = plan_.differ;
      if (count < plan_.most)
        out.scans.push_back({marks_.comma, state(g, before_item, count, used)});
      if (count >= plan_.least)
        out.scans.push_back({marks_.close_array, state(g, done, 0, 0)});
      break;
    case done: out.ends = true; break;
  }
  return out;
}

} // namespace troupe::guides
