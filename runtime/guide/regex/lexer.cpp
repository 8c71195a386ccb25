#include "runtime/guide/regex/lexer.hpp"
#include "runtime/guide/regex/partition.hpp"

#include <algorithm>

namespace troupe::guides {

lexer_state lexer::start(std::span<const tagged_expression> alternatives) {
  return intern({alternatives.begin(), alternatives.end()});
}

lexer_state lexer::intern(std::vector<tagged_expression> entries) {
  meter::charge(2 + 2 * entries.size());
  std::erase_if(entries, [&](const auto& e) { return !expressions_.alive(e.match); });
  if (entries.empty())
    return dead_lexer;
  std::uint64_t hash = entries.size();
  for (const auto& e : entries)
    hash = hash_mix(hash, std::uint64_t(e.tag) << 32 | e.match);
  return table_.find_or_add(
    hash,
    [&](std::uint32_t id) {
      const auto& s = states_[id];
      return std::ranges::equal(std::span(entries_).subspan(s.entries, s.entry_count), entries);
    },
    [&] {
      if (states_.size() >= limits_.states)
        too_large("states of regular expressions", limits_.states);
      state s;
      s.entries = static_cast<std::uint32_t>(entries_.size());
      s.entry_count = static_cast<std::uint32_t>(entries.size());
      entries_.insert(entries_.end(), entries.begin(), entries.end());
      s.accepts = static_cast<std::uint32_t>(accepts_.size());
      for (const auto& e : entries)
        if (expressions_.nullable(e.match) && (accepts_.size() == s.accepts || accepts_.back() != e.tag))
          accepts_.push_back(e.tag);
      s.accept_count = static_cast<std::uint32_t>(accepts_.size()) - s.accepts;
      s.goes_on = std::ranges::any_of(entries, [](const auto& e) { return e.match != empty_text; });
      states_.push_back(s);
      return static_cast<std::uint32_t>(states_.size() - 1);
    });
}

void lexer::expand(lexer_state s) {
  std::array<std::uint8_t, 256> classes{};
  std::vector<lexer_state> targets; // no more than 256
  std::vector<byte_set> leading;    // to each
  targets.reserve(8);
  leading.reserve(8);
  // The dead state is the first target, unless no byte leads there.
  auto dead = byte_set::all();
  if (s != dead_lexer) {
    partition<tagged_expression> cells;
    for (std::uint32_t i = 0; i < states_[s].entry_count; ++i) {
      const auto entry = entries_[states_[s].entries + i];
      for (const auto& p : expressions_.derivatives(entry.match))
        cells.overlay(p.when, {entry.tag, p.then});
    }
    for (const auto& c : cells.cells()) {
      const auto target = intern(cells.list(c));
      if (target == dead_lexer)
        continue;
      dead &= ~c.when;
      const auto at = std::ranges::find(targets, target) - targets.begin();
      if (at == std::ssize(targets)) {
        targets.push_back(target);
        leading.push_back(c.when);
      } else
        leading[static_cast<std::size_t>(at)] |= c.when;
    }
  }
  if (!dead.empty()) {
    targets.insert(targets.begin(), dead_lexer);
    leading.insert(leading.begin(), dead);
  }
  for (std::size_t i = 0; i < targets.size(); ++i)
    leading[i].for_each([&](unsigned char b) { classes[b] = static_cast<std::uint8_t>(i); });
  auto& st = states_[s];
  st.live = ~dead;
  st.classes = static_cast<std::uint32_t>(classes_.size());
  st.targets = static_cast<std::uint32_t>(targets_.size());
  st.target_count = static_cast<std::uint32_t>(targets.size());
  classes_.push_back(classes);
  targets_.insert(targets_.end(), targets.begin(), targets.end());
  leading_.insert(leading_.end(), leading.begin(), leading.end());
  st.expanded = true;
}

/// The one state that all of these bytes lead to, or not_uniform.
lexer_state lexer::uniform_after(lexer_state s, const byte_set& bytes) {
  const auto first = bytes.first();
  return (bytes & ~alike(s, first)).empty() ? next(s, first) : not_uniform;
}

lexer_state lexer::after_beyond_ascii(lexer_state s) {
  if (states_[s].after_beyond_ascii == unknown) {
    const auto to = next(next(s, 0xC3), 0xA9);
    const auto uniform = characters_lead(s, to, beyond_ascii_sequences); // makes states
    states_[s].after_beyond_ascii = uniform ? to : not_uniform;
  }
  return states_[s].after_beyond_ascii;
}

character_kinds lexer::alike_kinds(lexer_state s, std::size_t usual) {
  const auto byte = usual_bytes[usual];
  if (states_[s].alike[usual] == unknown) {
    const auto others = ~alike(s, byte);
    character_kinds kinds = 0;
    for (std::size_t k = 0; k < ascii_kinds.size(); ++k)
      if ((ascii_kinds[k] & others).empty())
        kinds |= character_kinds(1) << k;
    if (after_beyond_ascii(s) == next(s, byte))
      kinds |= beyond_ascii;
    states_[s].alike[usual] = kinds;
  }
  return states_[s].alike[usual];
}

lexer_state lexer::after(lexer_state s, alphabet a) {
  const auto k = static_cast<std::size_t>(a);
  if (states_[s].after[k] == unknown) {
    auto to = uniform_after(s, ascii_of(a));
    if (a == alphabet::plain && to != not_uniform && !characters_lead(s, to, plain_sequences))
      to = not_uniform;
    states_[s].after[k] = to;
  }
  return states_[s].after[k];
}

/// Whether these characters lead there, without a match on the way.
bool lexer::characters_lead(lexer_state s, lexer_state to, std::span<const utf8_sequences> characters) {
  const auto step = [&](lexer_state& at, const byte_set& set, bool last) {
    if (at != not_uniform)
      at = uniform_after(at, set);
    if (at != not_uniform && !last && !accepts(at).empty())
      at = not_uniform;
  };
  for (const auto& q : characters) {
    auto at = s;
    step(at, q.first, false);
    step(at, q.second, q.third.empty());
    if (!q.third.empty())
      step(at, q.third, q.fourth.empty());
    if (!q.fourth.empty())
      step(at, q.fourth, true);
    if (at != to)
      return false;
  }
  return true;
}

std::uint32_t lexer::characters(lexer_state s, alphabet a, std::uint32_t most) {
  for (std::uint32_t n = 0; n < most; ++n) {
    meter::charge(1);
    const auto next = after(s, a);
    if (next == not_uniform || !accepts(next).empty())
      return not_uniform;
    if (next == dead_lexer)
      return n;
    if (next == s)
      break;
    s = next;
  }
  return most;
}

} // namespace troupe::guides
