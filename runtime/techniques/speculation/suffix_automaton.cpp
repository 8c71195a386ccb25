#include "runtime/techniques/speculation/suffix_automaton.hpp"

#include <algorithm>
#include <bit>

namespace troupe {

suffix_automaton::suffix_automaton(std::size_t expected) {
  constexpr std::size_t most_reserved = 1 << 12; // tokens
  expected = std::clamp<std::size_t>(expected, 16, most_reserved);
  states_.reserve(expected * 3 / 2); // what texts usually take
  edges_.reserve(expected * 2);
  from_.reserve(expected * 2);
  table_.resize(std::bit_ceil(expected * 4));
  states_.emplace_back();
}

std::size_t suffix_automaton::memory() const {
  return states_.capacity() * sizeof(node) + edges_.capacity() * sizeof(edge) + from_.capacity() * sizeof(state) +
    table_.capacity() * sizeof(std::uint32_t);
}

// Where the edge is, or would be entered.
std::size_t suffix_automaton::place(state s, token_id token) const {
  auto hash = (static_cast<std::uint64_t>(s) << 32 | static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15;
  hash ^= hash >> 32;
  const auto mask = table_.size() - 1;
  auto at = static_cast<std::size_t>(hash) & mask;
  while (table_[at] != 0 && !(from_[table_[at] - 1] == s && edges_[table_[at] - 1].token == token))
    at = (at + 1) & mask;
  return at;
}

suffix_automaton::state suffix_automaton::next(state s, token_id token) const {
  const auto found = table_[place(s, token)];
  return found == 0 ? none : edges_[found - 1].to;
}

void suffix_automaton::grow() {
  std::vector<std::uint32_t> old(table_.size() * 2);
  std::swap(old, table_);
  for (std::uint32_t e = 0; e < edges_.size(); ++e)
    table_[place(from_[e], edges_[e].token)] = e + 1;
}

// Adds a transition, or changes where it leads.
void suffix_automaton::lead(state s, token_id token, state to) {
  auto at = place(s, token);
  if (table_[at] != 0) {
    edges_[table_[at] - 1].to = to;
    return;
  }
  if (edges_.size() * 2 >= table_.size()) {
    grow();
    at = place(s, token);
  }
  const auto added = static_cast<std::uint32_t>(edges_.size());
  edges_.push_back({token, to, states_[s].edges});
  from_.push_back(s);
  states_[s].edges = added;
  table_[at] = added + 1;
}

// The shorter texts of a state, up to a length, get a state of their own: they are about to end elsewhere, too.
suffix_automaton::state suffix_automaton::clone(state of, std::uint32_t length) {
  const auto copy = static_cast<state>(states_.size());
  auto own = states_[of];
  own.length = length;
  own.edges = last_edge;
  states_.push_back(own);
  std::vector<edge> edges;
  for (auto e = states_[of].edges; e != last_edge; e = edges_[e].next)
    edges.push_back(edges_[e]);
  for (auto e = edges.rbegin(); e != edges.rend(); ++e) // in the same order
    lead(copy, e->token, e->to);
  states_[of].shorter = copy;
  return copy;
}

void suffix_automaton::append(token_id token) {
  const auto now = static_cast<state>(states_.size());
  ++tokens_;
  states_.push_back({.length = tokens_, .first_end = tokens_});
  auto p = last_;
  while (p != none && next(p, token) == none) {
    lead(p, token, now);
    p = states_[p].shorter;
  }
  auto shorter = empty;
  if (p != none) {
    shorter = next(p, token);
    if (const auto length = states_[p].length + 1; states_[shorter].length != length) {
      const auto longer = shorter;
      shorter = clone(longer, length);
      for (; p != none && next(p, token) == longer; p = states_[p].shorter)
        lead(p, token, shorter);
    }
  }
  states_[now].shorter = shorter;
  last_ = now;
  auto s = now;
  for (std::size_t i = 0; i < counted && s != empty; ++i, s = states_[s].shorter) {
    ++states_[s].occurrences;
    states_[s].last_end = tokens_;
  }
}

} // namespace troupe
