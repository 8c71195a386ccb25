#include "runtime/guide/regex/lexer.hpp"

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
  std::vector<lexer_state> targets{dead_lexer}; // no more than 256: absent if no byte is dead
  byte_set live;
  if (s != dead_lexer) {
    // Refines classes of bytes until each leads to one list of entries.
    struct cell {
      byte_set when;
      std::vector<tagged_expression> then;
    };
    std::vector<cell> cells;
    for (std::uint32_t i = 0; i < states_[s].entry_count; ++i) {
      const auto entry = entries_[states_[s].entries + i];
      for (const auto& p : expressions_.derivatives(entry.match)) {
        auto rest = p.when;
        const auto existing = cells.size();
        meter::charge(1 + existing / 2);
        for (std::size_t k = 0; k < existing && !rest.empty(); ++k) {
          const auto both = cells[k].when & rest;
          if (both.empty())
            continue;
          rest &= ~both;
          const auto only = cells[k].when & ~both;
          if (!only.empty()) {
            cells.push_back({only, cells[k].then});
            cells[k].when = both;
          }
          cells[k].then.push_back({entry.tag, p.then});
        }
        if (!rest.empty())
          cells.push_back({rest, {{entry.tag, p.then}}});
      }
    }
    std::vector<lexer_state> leads;
    for (auto& c : cells) {
      leads.push_back(intern(std::move(c.then)));
      if (leads.back() != dead_lexer)
        live |= c.when;
    }
    if (live == byte_set::all())
      targets.clear();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const auto& c = cells[i];
      const auto target = leads[i];
      if (target == dead_lexer)
        continue;
      auto at = std::ranges::find(targets, target) - targets.begin();
      if (at == std::ssize(targets))
        targets.push_back(target);
      c.when.for_each([&](unsigned char b) { classes[b] = static_cast<std::uint8_t>(at); });
    }
  }
  auto& st = states_[s];
  st.live = live;
  st.classes = static_cast<std::uint32_t>(classes_.size());
  st.targets = static_cast<std::uint32_t>(targets_.size());
  st.target_count = static_cast<std::uint32_t>(targets.size());
  classes_.push_back(classes);
  targets_.insert(targets_.end(), targets.begin(), targets.end());
  st.expanded = true;
}

byte_set lexer::alike(lexer_state s, unsigned char byte) {
  if (!states_[s].expanded)
    expand(s);
  const auto& classes = classes_[states_[s].classes];
  std::array<std::uint64_t, 4> words{};
  for (unsigned b = 0; b < 256; ++b)
    words[b >> 6] |= std::uint64_t(classes[b] == classes[byte]) << (b & 63);
  return byte_set(words);
}

/// The one state that all of these bytes lead to, or not_uniform.
lexer_state lexer::uniform_after(lexer_state s, const byte_set& bytes) {
  const auto target = next(s, bytes.first());
  const auto& st = states_[s];
  bool uniform = true;
  const auto c = classes_[st.classes][bytes.first()];
  bytes.for_each([&](unsigned char b) { uniform &= classes_[st.classes][b] == c; });
  return uniform ? target : not_uniform;
}

lexer_state lexer::after(lexer_state s, alphabet a) {
  const auto k = static_cast<std::size_t>(a);
  if (states_[s].after[k] == unknown) {
    auto to = uniform_after(s, ascii_of(a));
    if (a == alphabet::plain && to != not_uniform && !characters_lead(s, to))
      to = not_uniform;
    states_[s].after[k] = to;
  }
  return states_[s].after[k];
}

/// Whether all plain characters beyond ASCII lead there, without a match on the way.
bool lexer::characters_lead(lexer_state s, lexer_state to) {
  // The well-formed sequences of UTF-8 (Unicode, table 3-7).
  static constexpr auto any = byte_set::range(0x80, 0xBF);
  using bytes = byte_set;
  static constexpr struct {
    byte_set first, second, third, fourth; // empty: none
  } sequences[] = {
    {bytes::range(0xC2, 0xDF), any, {}, {}},
    {bytes::of(0xE0), bytes::range(0xA0, 0xBF), any, {}},
    {bytes::of(0xE1) | bytes::range(0xE3, 0xEC) | bytes::range(0xEE, 0xEF), any, any, {}},
    {bytes::of(0xE2), bytes::of(0x80), bytes::range(0x80, 0xA7) | bytes::range(0xAA, 0xBF), {}}, // not U+2028, U+2029
    {bytes::of(0xE2), bytes::range(0x81, 0xBF), any, {}},
    {bytes::of(0xED), bytes::range(0x80, 0x9F), any, {}},
    {bytes::of(0xF0), bytes::range(0x90, 0xBF), any, any},
    {bytes::range(0xF1, 0xF3), any, any, any},
    {bytes::of(0xF4), bytes::range(0x80, 0x8F), any, any},
  };
  const auto step = [&](lexer_state& at, const byte_set& set, bool last) {
    if (at != not_uniform)
      at = uniform_after(at, set);
    if (at != not_uniform && !last && !accepts(at).empty())
      at = not_uniform;
  };
  for (const auto& q : sequences) {
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
