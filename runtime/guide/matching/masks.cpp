#include "runtime/guide/matching/masks.hpp"

#include <algorithm>

namespace troupe::guides {

namespace {

void set(std::vector<std::uint64_t>& m, token_id id) {
  m[static_cast<std::size_t>(id) / 64] |= std::uint64_t(1) << (id % 64);
}
void clear(std::vector<std::uint64_t>& m, token_id id) {
  m[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t(1) << (id % 64));
}

} // namespace

void token_masks::write(automaton_state s, std::span<std::uint64_t> out) {
  const auto& m = find(s);
  if (m.dense.empty()) {
    std::ranges::fill(out, 0);
    for (const auto id : m.sparse)
      out[static_cast<std::size_t>(id) / 64] |= std::uint64_t(1) << (id % 64);
  } else
    std::ranges::copy(m.dense, out.begin());
  if (states_.can_end(s))
    for (const auto id : vocabulary_.end_tokens())
      if (static_cast<std::size_t>(id) < vocabulary_.size())
        out[static_cast<std::size_t>(id) / 64] |= std::uint64_t(1) << (id % 64);
}

const token_masks::stored& token_masks::find(automaton_state s) {
  if (const auto known = masks_.find(s); known != masks_.end())
    return known->second;
  auto packed = pack(make(s));
  memory_ += 64 + packed.dense.capacity() * 8 + packed.sparse.capacity() * sizeof(token_id);
  return masks_.emplace(s, std::move(packed)).first->second;
}

token_masks::stored token_masks::pack(mask m) {
  std::size_t count = 0;
  for (const auto w : m)
    count += static_cast<std::size_t>(std::popcount(w));
  if (count * 32 > m.size() * 16)
    return {std::move(m), {}};
  stored result;
  result.sparse.reserve(count);
  for (std::size_t w = 0; w < m.size(); ++w)
    for (auto rest = m[w]; rest != 0; rest &= rest - 1)
      result.sparse.push_back(static_cast<token_id>(w * 64 + static_cast<std::size_t>(std::countr_zero(rest))));
  return result;
}

token_masks::mask token_masks::make(automaton_state s) {
  const auto plain = states_.after_plain_character(s);
  if (plain == s) {
    const auto all = vocabulary_.plain(vocabulary_.longest_plain());
    mask out(all.begin(), all.end());
    add(vocabulary_.behind_any_plain(), s, out);
    return out;
  }
  if (plain == automaton::not_uniform) {
    if (const auto usual = usual_successor(s); usual != dead_state) {
      mask out(vocabulary_.words());
      const auto& assumed = find(usual);
      if (assumed.dense.empty())
        for (const auto id : assumed.sparse)
          set(out, id);
      else
        out = assumed.dense;
      correct(s, usual, out);
      return out;
    }
  } else {
    mask out(vocabulary_.words());
    if (add_counted(s, out))
      return out;
  }
  mask out(vocabulary_.words());
  add(vocabulary_.all(), s, out);
  return out;
}

/// Adds the tokens of the tree that may follow.
void token_masks::add(const token_tree& tree, automaton_state s, mask& out) {
  path_.resize(std::max<std::size_t>(path_.size(), 8));
  path_[0] = s;
  const auto* nodes = tree.nodes.data();
  const auto end = tree.end();
  for (std::uint32_t i = 1; i < end;) {
    const auto& n = nodes[i];
    const auto next = states_.next(path_[n.depth - 1u], n.byte);
    if (next == dead_state) {
      i = n.skip;
      continue;
    }
    if (path_.size() <= n.depth)
      path_.resize(n.depth + 8u);
    path_[n.depth] = next;
    for (auto t = n.first, last = nodes[i + 1].first; t < last; ++t)
      set(out, tree.tokens[t]);
    ++i;
  }
}

/// Turns the mask of `assumed` into that of `s`: visits the tokens on which they differ.
void token_masks::correct(automaton_state s, automaton_state assumed, mask& out) {
  const auto& tree = vocabulary_.all();
  path_.resize(std::max<std::size_t>(path_.size(), 8));
  assumed_.resize(path_.size());
  path_[0] = s;
  assumed_[0] = assumed;
  const auto* nodes = tree.nodes.data();
  const auto end = tree.end();
  for (std::uint32_t i = 1; i < end;) {
    const auto& n = nodes[i];
    const auto next = states_.next(path_[n.depth - 1u], n.byte);
    const auto other = states_.next(assumed_[n.depth - 1u], n.byte);
    if (next == other) {
      i = n.skip;
      continue;
    }
    if (next == dead_state) {
      for (auto t = n.first, last = nodes[n.skip].first; t < last; ++t)
        clear(out, tree.tokens[t]);
      i = n.skip;
      continue;
    }
    if (path_.size() <= n.depth)
      path_.resize(n.depth + 8u);
    assumed_.resize(path_.size());
    path_[n.depth] = next;
    assumed_[n.depth] = other;
    for (auto t = n.first, last = nodes[i + 1].first; t < last; ++t)
      set(out, tree.tokens[t]);
    ++i;
  }
}

/// Where plain characters lead from state to state, whichever they are: until none may follow, or they change nothing
/// any more. False if neither is the case.
bool token_masks::add_counted(automaton_state s, mask& out) {
  const auto& behind = vocabulary_.behind_plain();
  std::vector<automaton_state> chain{s};
  const auto most = std::max(vocabulary_.longest_plain() + 1, behind.size());
  bool settled = false;
  while (chain.size() <= most && !settled) {
    const auto next = states_.after_plain_character(chain.back());
    if (next == automaton::not_uniform)
      return false;
    if (next == dead_state)
      break;
    settled = next == chain.back();
    if (!settled)
      chain.push_back(next);
  }
  std::ranges::copy(vocabulary_.plain(settled ? vocabulary_.longest_plain() : chain.size() - 1), out.begin());
  for (std::size_t c = 0; c < behind.size() && (c < chain.size() || settled); ++c)
    if (!behind[c].empty())
      add(behind[c], chain[std::min(c, chain.size() - 1)], out);
  return true;
}

/// A state that plain characters do not leave, and that most bytes lead to; or dead_state.
automaton_state token_masks::usual_successor(automaton_state s) {
  for (const unsigned char probe : {'~', 'Q', 'z', '0', ' '})
    if (const auto next = states_.next(s, probe); next != dead_state && states_.after_plain_character(next) == next)
      return next;
  return dead_state;
}

} // namespace troupe::guides
