#include "runtime/guide/grammar/automaton.hpp"

#include <algorithm>

namespace troupe::guides {

automaton::automaton(const grammar& g) : grammar_(g) {
  sets_.push_back({});
  row_of_.push_back(nullptr);
  reach(grammar_.start(grammar_.root()), {outside, 0});
  close();
  start_ = intern();
}

// -- closure --------------------------------------------------------------------

/// Adds a position, once.
void automaton::reach(rule_state at, origin back) {
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

void automaton::close() {
  for (std::size_t i = 0; i < positions_.size(); ++i)
    visit(position(positions_[i]));
}

void automaton::visit(const position& p) {
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

void automaton::end_rule(origin back) {
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
automaton_state automaton::intern() {
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
    s.tells_apart = tells_values_apart() && is_within_told_apart();
    scans_.insert(scans_.end(), new_scans_.begin(), new_scans_.end());
    waiters_.insert(waiters_.end(), new_waiters_.begin(), new_waiters_.end());
    sets_.push_back(s);
    row_of_.push_back(nullptr);
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
bool automaton::is_within_told_apart() const {
  const auto within = [&](rule_state at, origin back) {
    return grammar_.made(at).tells_apart || (back.set < outside && sets_[back.set].tells_apart);
  };
  return std::ranges::any_of(new_scans_, [&](const auto& s) { return within(s.at, s.back); }) ||
    std::ranges::any_of(new_waiters_,
                        [&](const auto& w) { return grammar_.made(w.to).is_told_apart || within(w.to, w.back); });
}

// -- transitions ------------------------------------------------------------------

void automaton::open(automaton_state s) {
  byte_set live;
  meter::charge(sets_[s].scan_count);
  for (std::uint32_t i = 0; i < sets_[s].scan_count; ++i)
    live |= grammar_.lexer().live(scans_[sets_[s].scans + i].in);
  sets_[s].live = live;
  if (rows_left_ == 0) {
    rows_.push_back(std::make_unique<automaton_state[]>(256 * rows_at_once));
    rows_left_ = rows_at_once;
  }
  auto* row = rows_.back().get() + 256 * (rows_at_once - rows_left_--);
  live.for_each([&](unsigned char b) { row[b] = unknown; });
  row_of_[s] = row;
}

automaton_state automaton::compute(automaton_state s, unsigned char byte) {
  if (!row_of_[s]) {
    open(s);
    if (row_of_[s][byte] != unknown)
      return row_of_[s][byte];
  }
  const auto target = successor(s, byte);
  auto* row = row_of_[s];
  auto alike = byte_set::all();
  for_each_scanner(s, [&](lexer_state in) { alike &= grammar_.lexer().alike(in, byte); });
  alike.for_each([&](unsigned char b) { row[b] = target; });
  return target;
}

/// The states of terminals that are under way, each once as they are sorted.
template <class F>
void automaton::for_each_scanner(automaton_state s, F visit) {
  const auto [first, count] = std::pair(sets_[s].scans, sets_[s].scan_count);
  meter::charge(count / 4);
  auto last = dead_lexer;
  for (std::uint32_t i = 0; i < count; ++i)
    if (const auto in = scans_[first + i].in; in != last)
      visit(last = in);
}

automaton_state automaton::next_again(automaton_state s, unsigned char byte) {
  const auto [known, fresh] = again_.try_emplace(std::uint64_t(s) << 8 | byte, dead_state);
  if (fresh) {
    was_there_ = true;
    try {
      known->second = successor(s, byte);
    } catch (...) { // the limits: all of this is dropped
      was_there_ = false;
      throw;
    }
    was_there_ = false;
  }
  return known->second;
}

automaton_state automaton::successor(automaton_state s, unsigned char byte) {
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

// -- texts that may follow whatever they are ------------------------------------------

text_bounds automaton::find_free_text(automaton_state s, choice which) {
  const auto set_known = [&](automaton_state at, text_bounds text) {
    sets_[at].free_text[which] = text;
    sets_[at].knows_free_text[which] = true;
    return text;
  };
  if (!live(s).has('z') && !live(s).has('Z'))
    return set_known(s, {});
  constexpr character_kinds quotes = kind_of('"') | kind_of('\\');
  const auto likened = alike_kinds(s);
  auto kinds = which == alike ? likened : (alive_kinds(s) & ~quotes) | likened;
  // Other kinds may turn out not to be free, and are given up, but not these.
  const auto needed = (kinds & kind_of('z')) != 0 ? kind_of('z') : kinds & kind_of('Z');
  if (needed == 0 || matters(s))
    return set_known(s, {});
  if (which == alive && kinds == likened)
    return set_known(s, free_text(s, alike));

  // The states that characters of these kinds lead to, the nearest first.
  struct visit {
    automaton_state at;
    std::uint32_t depth; // characters
  };
  std::vector<visit> visits{{s, 0}};
  const std::size_t most = which == alike ? 16 : 32;
  visits.reserve(most + 8);
  auto length = text_bounds::any_length;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto [at, depth] = visits[i];
    meter::charge(32);
    const auto rest = kinds & alive_kinds(at);
    bool goes_on = (rest & needed) != 0 && visits.size() <= most;
    if (goes_on) {
      kinds = rest;
      if (const auto known = sets_[at].free_text[which];
          known.length() == text_bounds::any_length && (kinds & ~known.kinds()) == 0)
        continue;
      auto last = at;
      const auto reach = [&](automaton_state to) {
        if (to == last || to == at)
          return;
        last = to;
        goes_on &= !matters(to);
        if (std::ranges::find(visits, to, &visit::at) == visits.end())
          visits.push_back({to, depth + 1});
      };
      for (std::size_t k = 0; k < ascii_kinds.size(); ++k)
        if ((kinds >> k & 1) != 0)
          ascii_kinds[k].for_each([&](unsigned char b) { reach(next(at, b)); });
      if ((kinds & beyond_ascii) != 0)
        reach(after_beyond_ascii(at));
    }
    if (!goes_on) {
      length = std::min(depth, text_bounds::any_length - 1);
      break;
    }
  }
  for (const auto& [at, depth] : visits)
    if (length == text_bounds::any_length) {
      if (const auto found = text_bounds(kinds, length); !found.within(sets_[at].free_text[which]))
        set_known(at, found);
    } else if (depth > 0 && length >= depth + most / 4 && !sets_[at].knows_free_text[which])
      set_known(at, {kinds, length - depth}); // else more is found when it is asked for
  return length == text_bounds::any_length ? sets_[s].free_text[which]
                                           : set_known(s, length == 0 ? text_bounds() : text_bounds(kinds, length));
}

/// Whether what was there may decide what follows.
bool automaton::matters(automaton_state s) const {
  return tells_values_apart() && (tells_apart(s) || is_told_apart(s));
}

/// Where all characters beyond ASCII (as kinds know them) lead, if they do so alike; or dead_state.
automaton_state automaton::after_beyond_ascii(automaton_state s) {
  bool uniform = true;
  for_each_scanner(
    s, [&](lexer_state in) { uniform = uniform && grammar_.lexer().after_beyond_ascii(in) != lexer::not_uniform; });
  if (!uniform)
    return dead_state;
  const auto within = next(s, 0xC3);
  return within == dead_state ? dead_state : next(within, 0xA9);
}

/// The kinds all of whose characters may follow.
character_kinds automaton::alive_kinds(automaton_state s) {
  const auto dead = ~live(s);
  character_kinds kinds = after_beyond_ascii(s) != dead_state ? beyond_ascii : 0;
  for (std::size_t k = 0; k < ascii_kinds.size(); ++k)
    if ((ascii_kinds[k] & dead).empty())
      kinds |= character_kinds(1) << k;
  return kinds;
}

/// The kinds all of whose characters lead where most do.
character_kinds automaton::alike_kinds(automaton_state s) {
  for (std::size_t i = 0; i < usual_bytes.size(); ++i) {
    if (!live(s).has(usual_bytes[i]))
      continue;
    auto kinds = all_kinds & ~other_kind;
    for_each_scanner(s, [&](lexer_state in) {
      if (kinds != 0)
        kinds &= grammar_.lexer().alike_kinds(in, i);
    });
    if (kinds != 0)
      return kinds;
  }
  return 0;
}

// -- alphabets --------------------------------------------------------------------------

automaton_state automaton::after(automaton_state s, alphabet a) {
  const auto k = static_cast<std::size_t>(a);
  if (sets_[s].after[k] != not_asked)
    return sets_[s].after[k];
  bool uniform = true;
  meter::charge(sets_[s].scan_count);
  for (std::uint32_t i = 0; i < sets_[s].scan_count && uniform; ++i)
    uniform = grammar_.lexer().after(scans_[sets_[s].scans + i].in, a) != lexer::not_uniform;
  const auto result = uniform ? next(s, 'a') : not_uniform;
  sets_[s].after[k] = result;
  return result;
}

std::uint32_t automaton::characters(automaton_state s, alphabet a, std::uint32_t most) {
  std::uint32_t result = 0;
  meter::charge(sets_[s].scan_count);
  for (std::uint32_t i = 0; i < sets_[s].scan_count; ++i) {
    const auto n = grammar_.lexer().characters(scans_[sets_[s].scans + i].in, a, most);
    if (n == lexer::not_uniform)
      return n;
    result = std::max(result, n);
  }
  return result;
}

bool automaton::prepare(std::uint64_t steps) {
  auto& lex = grammar_.lexer();
  const auto* spent = meter::current();
  const auto end = spent ? spent->steps() + steps : 0;
  const auto add = [&](lexer_state s) {
    if (s >= prepare_seen_.size())
      prepare_seen_.resize(s + 1);
    if (s != dead_lexer && !prepare_seen_[s]) {
      prepare_seen_[s] = true;
      to_prepare_.push_back(s);
    }
  };
  while (lex.size() < most_prepared && (!spent || spent->steps() < end)) {
    if (!to_prepare_.empty()) {
      const auto s = to_prepare_.back();
      to_prepare_.pop_back();
      meter::charge(64);
      for (const auto next : lex.successors(s))
        add(next);
    } else if (prepared_ < grammar_.size()) {
      meter::charge(1);
      if (const auto at = prepared_++; grammar_.is_made(at))
        add(grammar_.made(at).scanner);
    } else
      return false;
  }
  return lex.size() < most_prepared;
}

} // namespace troupe::guides
