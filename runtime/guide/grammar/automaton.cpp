#include "runtime/guide/grammar/automaton.hpp"

#include <algorithm>

namespace troupe::guides {

automaton::automaton(const grammar& g) : sets_(g), start_(grown(sets_.start())) {}

/// A state that may be new.
automaton_state automaton::grown(automaton_state s) {
  while (known_.size() < sets_.size()) {
    known_.push_back({});
    row_of_.push_back(nullptr);
  }
  return s;
}

// -- transitions ------------------------------------------------------------------

void automaton::open(automaton_state s) {
  byte_set live;
  const auto scans = sets_.scans(s);
  meter::charge(scans.size());
  for (const auto& scan : scans)
    live |= lex().live(scan.in);
  known_[s].live = live;
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
  const auto target = grown(sets_.successor(s, byte));
  auto* row = row_of_[s];
  auto alike = byte_set::all();
  for_each_scanner(s, [&](lexer_state in) { alike &= lex().alike(in, byte); });
  alike.for_each([&](unsigned char b) { row[b] = target; });
  return target;
}

/// The states of terminals that are under way, each once as they are sorted.
template <class F>
void automaton::for_each_scanner(automaton_state s, F visit) {
  const auto scans = sets_.scans(s);
  meter::charge(scans.size() / 4);
  auto last = dead_lexer;
  for (const auto& scan : scans)
    if (scan.in != last)
      visit(last = scan.in);
}

automaton_state automaton::next_again(automaton_state s, unsigned char byte) {
  const auto [known, fresh] = again_.try_emplace(std::uint64_t(s) << 8 | byte, dead_state);
  if (fresh)
    known->second = grown(sets_.successor(s, byte, true));
  return known->second;
}

// -- texts that may follow whatever they are ------------------------------------------

text_bounds automaton::find_free_text(automaton_state s, choice which) {
  const auto set_known = [&](automaton_state at, text_bounds text) {
    known_[at].free_text[which] = text;
    known_[at].knows_free_text[which] = true;
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
      if (const auto known = known_[at].free_text[which];
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
      if (const auto found = text_bounds(kinds, length); !found.within(known_[at].free_text[which]))
        set_known(at, found);
    } else if (depth > 0 && length >= depth + most / 4 && !known_[at].knows_free_text[which])
      set_known(at, {kinds, length - depth}); // else more is found when it is asked for
  return length == text_bounds::any_length ? known_[s].free_text[which]
                                           : set_known(s, length == 0 ? text_bounds() : text_bounds(kinds, length));
}

/// Whether what was there may decide what follows.
bool automaton::matters(automaton_state s) const {
  return tells_values_apart() && (tells_apart(s) || is_told_apart(s));
}

/// Where all characters beyond ASCII (as kinds know them) lead, if they do so alike; or dead_state.
automaton_state automaton::after_beyond_ascii(automaton_state s) {
  bool uniform = true;
  for_each_scanner(s, [&](lexer_state in) { uniform = uniform && lex().after_beyond_ascii(in) != lexer::not_uniform; });
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
        kinds &= lex().alike_kinds(in, i);
    });
    if (kinds != 0)
      return kinds;
  }
  return 0;
}

// -- alphabets --------------------------------------------------------------------------

automaton_state automaton::after(automaton_state s, alphabet a) {
  const auto k = static_cast<std::size_t>(a);
  if (known_[s].after[k] != not_asked)
    return known_[s].after[k];
  bool uniform = true;
  const auto scans = sets_.scans(s);
  meter::charge(scans.size());
  for (std::size_t i = 0; i < scans.size() && uniform; ++i)
    uniform = lex().after(scans[i].in, a) != lexer::not_uniform;
  const auto result = uniform ? next(s, 'a') : not_uniform;
  known_[s].after[k] = result;
  return result;
}

std::uint32_t automaton::characters(automaton_state s, alphabet a, std::uint32_t most) {
  std::uint32_t result = 0;
  const auto scans = sets_.scans(s);
  meter::charge(scans.size());
  for (const auto& scan : scans) {
    const auto n = lex().characters(scan.in, a, most);
    if (n == lexer::not_uniform)
      return n;
    result = std::max(result, n);
  }
  return result;
}

bool automaton::prepare(std::uint64_t steps) {
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
  while (lex().size() < most_prepared && (!spent || spent->steps() < end)) {
    if (!to_prepare_.empty()) {
      const auto s = to_prepare_.back();
      to_prepare_.pop_back();
      meter::charge(64);
      for (const auto next : lex().successors(s))
        add(next);
    } else if (prepared_ < sets_.rules().size()) {
      meter::charge(1);
      if (const auto at = prepared_++; sets_.rules().is_made(at))
        add(sets_.rules().made(at).scanner);
    } else
      return false;
  }
  return lex().size() < most_prepared;
}

} // namespace troupe::guides
