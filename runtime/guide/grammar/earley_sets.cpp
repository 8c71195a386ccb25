#include "runtime/guide/grammar/earley_sets.hpp"

#include <algorithm>

namespace troupe::guides {

earley_sets::earley_sets(const grammar& g) : grammar_(g) { sets_.push_back({}); }

automaton_state earley_sets::start() {
  reach(grammar_.start(grammar_.root()), {outside, 0});
  close();
  return intern();
}

automaton_state earley_sets::successor(automaton_state s, unsigned char byte, bool was_there) {
  was_there_ = was_there;
  const auto [first, count] = std::pair(sets_[s].scans, sets_[s].scan_count);
  meter::charge(2 + 2 * count);
  auto& lex = grammar_.lexer();
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto item = scans_[first + i];
    const auto in = lex.next(item.in, byte);
    if (in == dead_lexer)
      continue;
    const auto back = item.back.set == itself ? origin{s, item.back.rule} : item.back;
    if (lex.goes_on(in))
      new_scans_.push_back({in, item.at, back});
    for (const auto tag : lex.accepts(in))
      reach(grammar_.target(grammar_.at(item.at), tag), back);
  }
  close();
  return intern();
}

// -- the set being made --------------------------------------------------------------------

/// Adds a position, once.
void earley_sets::reach(rule_state at, origin back) {
  meter::charge(1);
  const auto hash = hash_mix(hash_mix(at, back.set), back.rule);
  if (positions_.size() * 2 >= position_table_.size()) {
    position_table_.assign(std::max<std::size_t>(64, position_table_.size() * 2), unknown);
    for (std::uint32_t i = 0; i < positions_.size(); ++i) {
      const auto& p = positions_[i];
      auto slot = hash_mix(hash_mix(p.at, p.back.set), p.back.rule);
      while (position_table_[slot & (position_table_.size() - 1)] != unknown)
        ++slot;
      position_table_[slot & (position_table_.size() - 1)] = i;
    }
  }
  auto slot = hash;
  for (;; ++slot) {
    auto& known = position_table_[slot & (position_table_.size() - 1)];
    if (known == unknown) {
      known = static_cast<std::uint32_t>(positions_.size());
      break;
    }
    if (positions_[known].at == at && positions_[known].back == back)
      return;
  }
  if (positions_.size() >= grammar_.limits().items / 16)
    too_large("positions of one state of the automaton", grammar_.limits().items / 16);
  positions_.push_back({at, back});
}

void earley_sets::close() {
  for (std::size_t i = 0; i < positions_.size(); ++i)
    visit(position(positions_[i]));
}

void earley_sets::visit(const position& p) {
  const auto st = grammar_.at(p.at); // a copy: calls below make states
  if (st.is_told_apart) {
    new_is_told_apart_ = true;
    if (was_there_)
      return;
  }
  new_begins_values_ |= st.begins_values;
  for (std::uint32_t i = 0; i < st.skip_count; ++i)
    reach(grammar_.skips(st)[i], p.back);
  if (st.scanner != dead_lexer) {
    if (grammar_.lexer().goes_on(st.scanner))
      new_scans_.push_back({st.scanner, p.at, p.back});
    for (const auto tag : grammar_.lexer().accepts(st.scanner))
      reach(grammar_.target(st, tag), p.back);
  }
  for (std::uint32_t i = 0; i < st.call_count; ++i) {
    const auto call = grammar_.calls(st)[i];
    if (grammar_.at(call.to).returns) { // a tail call: the rule's end is this one's, so that recursion at the end of a
      reach(grammar_.start(call.rule), p.back); // rule does not grow the states
      continue;
    }
    const origin here{itself, call.rule};
    meter::charge(2 + ended_.size() / 4);
    new_waiters_.push_back({call.rule, call.to, p.back});
    if (std::ranges::find(ended_, here) != ended_.end()) // matched nothing already
      reach(call.to, p.back);
    reach(grammar_.start(call.rule), here);
  }
  if (st.ends)
    end_rule(p.back);
}

void earley_sets::end_rule(origin back) {
  if (back.set == outside) {
    new_can_end_ = true;
    return;
  }
  meter::charge(1 + ended_.size() / 4);
  if (std::ranges::find(ended_, back) != ended_.end())
    return;
  ended_.push_back(back);
  if (back.set == itself) {
    meter::charge(new_waiters_.size() / 4);
    for (std::size_t i = 0; i < new_waiters_.size(); ++i)
      if (new_waiters_[i].rule == back.rule)
        reach(new_waiters_[i].to, new_waiters_[i].back);
    return;
  }
  const auto& from = sets_[back.set];
  const auto all = std::span(waiters_).subspan(from.waiters, from.waiter_count);
  for (auto w = std::ranges::lower_bound(all, back.rule, {}, &waiter::rule); w != all.end() && w->rule == back.rule;
       ++w)
    reach(w->to, w->back.set == itself ? origin{back.set, w->back.rule} : w->back);
}

/// The id of the set that has been made; clears the scratch.
automaton_state earley_sets::intern() {
  meter::charge(8 + 4 * (new_scans_.size() + new_waiters_.size()));
  std::ranges::sort(new_scans_);
  new_scans_.erase(std::ranges::unique(new_scans_).begin(), new_scans_.end());
  std::ranges::sort(new_waiters_);
  new_waiters_.erase(std::ranges::unique(new_waiters_).begin(), new_waiters_.end());
  std::uint64_t hash = new_can_end_ | new_is_told_apart_ << 1 | new_begins_values_ << 2;
  for (const auto& s : new_scans_)
    hash = hash_mix(hash_mix(hash, std::uint64_t(s.in) << 32 | s.at), std::uint64_t(s.back.set) << 32 | s.back.rule);
  for (const auto& w : new_waiters_)
    hash = hash_mix(hash_mix(hash, std::uint64_t(w.rule) << 32 | w.to), std::uint64_t(w.back.set) << 32 | w.back.rule);
  const auto equal = [&](std::uint32_t id) {
    const auto& s = sets_[id];
    return s.can_end == new_can_end_ && s.is_told_apart == new_is_told_apart_ &&
      s.begins_values == new_begins_values_ &&
      std::ranges::equal(std::span(scans_).subspan(s.scans, s.scan_count), new_scans_) &&
      std::ranges::equal(std::span(waiters_).subspan(s.waiters, s.waiter_count), new_waiters_);
  };
  const auto add = [&] {
    const auto& limits = grammar_.limits();
    if (sets_.size() >= limits.states)
      too_large("states", limits.states);
    if (scans_.size() + waiters_.size() + new_scans_.size() + new_waiters_.size() > limits.items)
      too_large("positions", limits.items);
    set s;
    s.scans = static_cast<std::uint32_t>(scans_.size());
    s.scan_count = static_cast<std::uint32_t>(new_scans_.size());
    s.waiters = static_cast<std::uint32_t>(waiters_.size());
    s.waiter_count = static_cast<std::uint32_t>(new_waiters_.size());
    s.can_end = new_can_end_;
    s.is_told_apart = new_is_told_apart_;
    s.begins_values = new_begins_values_;
    s.tells_apart = grammar_.tells_values_apart() && is_within_told_apart();
    scans_.insert(scans_.end(), new_scans_.begin(), new_scans_.end());
    waiters_.insert(waiters_.end(), new_waiters_.begin(), new_waiters_.end());
    sets_.push_back(s);
    return static_cast<std::uint32_t>(sets_.size() - 1);
  };
  const bool dead = new_scans_.empty() && !new_can_end_;
  const auto id = dead ? dead_state : table_.find_or_add(hash, equal, add);
  new_scans_.clear();
  new_waiters_.clear();
  if (position_table_.size() > 4096) // was large once
    position_table_.assign(64, unknown);
  else
    std::ranges::fill(position_table_, unknown);
  positions_.clear();
  ended_.clear();
  new_can_end_ = new_is_told_apart_ = new_begins_values_ = false;
  return id;
}

/// Whether the set being made is within a value or name that is told apart from others; maybe.
bool earley_sets::is_within_told_apart() const {
  const auto within = [&](rule_state at, origin back) {
    return grammar_.made(at).tells_apart || (back.set < outside && sets_[back.set].tells_apart);
  };
  return std::ranges::any_of(new_scans_, [&](const auto& s) { return within(s.at, s.back); }) ||
    std::ranges::any_of(new_waiters_,
                        [&](const auto& w) { return grammar_.made(w.to).is_told_apart || within(w.to, w.back); });
}

} // namespace troupe::guides
