#include "runtime/guide/matching/masks.hpp"

#include <algorithm>
#include <utility>

namespace troupe::guides {

namespace {

void set(std::vector<std::uint64_t>& m, token_id id) {
  m[static_cast<std::size_t>(id) / 64] |= std::uint64_t(1) << (id % 64);
}
void clear(std::vector<std::uint64_t>& m, token_id id) {
  m[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t(1) << (id % 64));
}

} // namespace

void token_masks::write(automaton_state s, const seen_values& seen, std::span<std::uint64_t> out) {
  const auto& m = find(s, {seen.in_string(), seen.is_escaped()});
  if (m.dense.empty()) {
    std::ranges::fill(out, 0);
    for (const auto id : m.sparse)
      out[static_cast<std::size_t>(id) / 64] |= std::uint64_t(1) << (id % 64);
  } else
    std::ranges::copy(m.dense, out.begin());
  for (const auto id : m.apart)
    if (!apart_.allows(s, vocabulary_.bytes(id), seen))
      out[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t(1) << (id % 64));
  if (states_.can_end(s))
    for (const auto id : vocabulary_.end_tokens())
      if (static_cast<std::size_t>(id) < vocabulary_.size())
        out[static_cast<std::size_t>(id) / 64] |= std::uint64_t(1) << (id % 64);
}

const token_masks::stored& token_masks::find(automaton_state s, json_place place) {
  if (const auto known = masks_.find(s); known != masks_.end())
    return known->second;
  return masks_.emplace(s, make(s, place)).first->second;
}

void token_masks::clear_found() {
  found_.clear();
  all_found_.clear();
  dependent_.clear();
}

/// The tokens found, and those of `base`, which may be empty.
token_masks::stored token_masks::pack(std::span<const std::uint64_t> base) {
  auto count = found_.size();
  for (const auto& part : all_found_)
    count += part.size();
  if (base.empty() && count <= vocabulary_.words()) {
    stored result{{}, found_, std::exchange(dependent_, {})};
    for (const auto& part : all_found_)
      result.sparse.insert(result.sparse.end(), part.begin(), part.end());
    return result;
  }
  mask dense(base.begin(), base.end());
  dense.resize(vocabulary_.words());
  for (const auto id : found_)
    set(dense, id);
  for (const auto& part : all_found_)
    for (const auto id : part)
      set(dense, id);
  return {std::move(dense), {}, std::exchange(dependent_, {})};
}

token_masks::stored token_masks::make(automaton_state s, json_place place) {
  clear_found();
  if (const auto loop = loop_of(s)) {
    const auto& tokens = vocabulary_.of(*loop);
    add(tokens.behind, s, place);
    return pack(tokens.only.back());
  }
  auto behind = place;
  if (const auto usual = usual_successor(s, behind); usual != dead_state) {
    const auto& assumed = find(usual, behind);
    clear_found();
    dependent_ = assumed.apart;
    mask out = assumed.dense;
    out.resize(vocabulary_.words());
    for (const auto id : assumed.sparse)
      set(out, id);
    correct(s, usual, place, out);
    std::ranges::sort(dependent_);
    dependent_.erase(std::ranges::unique(dependent_).begin(), dependent_.end());
    std::erase_if(dependent_,
                  [&](token_id id) { return (out[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) == 0; });
    return {std::move(out), {}, std::exchange(dependent_, {})};
  }
  if (const auto* only = add_counted(s, place))
    return pack(*only);
  clear_found();
  add(vocabulary_.all(), s, place);
  return pack({});
}

/// Whether the fate of tokens that lead from a frame to `next` depends on what was there.
bool token_masks::depends(frame& f, automaton_state next, json_place place) {
  return f.passed || states_.is_told_apart(next) || apart_.may_run_out(next, place);
}

/// Whether all tokens behind a node, where the state is `s`, may follow; false also where that is not evident. What
/// leads to different states takes longer to find: where there are more tokens than `many`.
bool token_masks::all_follow(const token_tree& tree, std::uint32_t node, automaton_state s, std::uint32_t many) {
  constexpr std::uint32_t few = 64; // tokens, which are looked at sooner
  using free = automaton::choice;
  const auto& n = tree.nodes[node];
  const auto behind = tree.behind[node];
  const auto count = n.end - n.first;
  return behind.within(count > few ? states_.free_text(s, free::alike) : states_.known_free_text(s, free::alike)) ||
    behind.within(count > many ? states_.free_text(s, free::alive) : states_.known_free_text(s, free::alive));
}

/// Adds the tokens of the tree that may follow to those found.
void token_masks::add(const token_tree& tree, automaton_state s, json_place place) {
  const bool apart = states_.tells_values_apart();
  const auto* nodes = tree.nodes.data();
  const auto* bytes = tree.bytes.data();
  frames_.clear();
  frames_.push_back({nodes[0].children, nodes[0].children + nodes[0].count, s, 0, states_.live(s), place, false});
  while (!frames_.empty()) {
    meter::charge(1);
    auto& f = frames_.back();
    while (f.at < f.end && !f.live.has(bytes[f.at]))
      ++f.at;
    if (f.at == f.end) {
      frames_.pop_back();
      continue;
    }
    const auto i = f.at++;
    const auto next = states_.next(f.in, bytes[i]);
    if (next == dead_state)
      continue;
    const auto& n = nodes[i];
    for (std::uint32_t t = 0; t < n.own; ++t)
      found_.push_back(tree.tokens[n.first + t]);
    auto behind = f.place;
    bool passed = false;
    if (apart) {
      behind.take(bytes[i]);
      passed = f.passed || states_.is_told_apart(next);
      if (n.own > 0 && depends(f, next, behind))
        for (std::uint32_t t = 0; t < n.own; ++t)
          dependent_.push_back(tree.tokens[n.first + t]);
    }
    if (n.count == 0)
      continue;
    if (!passed && all_follow(tree, i, next, 1024)) {
      meter::charge((n.end - n.first) / 16);
      all_found_.push_back(std::span(tree.tokens).subspan(n.first + n.own, n.end - n.first - n.own));
    } else if (const auto& live = states_.live(next); !live.empty())
      frames_.push_back({n.children, n.children + n.count, next, 0, live, behind, passed});
  }
}

/// Turns the mask of `assumed` into that of `s`: visits the tokens on which they differ.
void token_masks::correct(automaton_state s, automaton_state assumed, json_place place, mask& out) {
  const bool apart = states_.tells_values_apart();
  const auto& tree = vocabulary_.all();
  const auto* nodes = tree.nodes.data();
  const auto* bytes = tree.bytes.data();
  const auto enter = [&](const token_tree::node& n, automaton_state in, automaton_state other, json_place at,
                         bool passed) {
    auto live = states_.live(in);
    frames_.push_back({n.children, n.children + n.count, in, other, live |= states_.live(other), at, passed});
  };
  frames_.clear();
  enter(nodes[0], s, assumed, place, false);
  while (!frames_.empty()) {
    meter::charge(1);
    auto& f = frames_.back();
    while (f.at < f.end && !f.live.has(bytes[f.at]))
      ++f.at;
    if (f.at == f.end) {
      frames_.pop_back();
      continue;
    }
    const auto i = f.at++;
    const auto next = states_.next(f.in, bytes[i]);
    const auto other = states_.next(f.assumed, bytes[i]);
    const auto& n = nodes[i];
    auto behind = f.place;
    bool passed = false;
    if (apart && next != dead_state) {
      behind.take(bytes[i]);
      passed = f.passed || states_.is_told_apart(next);
      const auto end = next == other ? n.end : n.first + n.own; // all behind it, or this one
      if (next == other ? passed : n.own > 0 && depends(f, next, behind))
        dependent_.insert(dependent_.end(), tree.tokens.begin() + n.first, tree.tokens.begin() + end);
    }
    if (next == other)
      continue;
    if (next == dead_state) {
      for (auto t = n.first; t < n.end; ++t)
        clear(out, tree.tokens[t]);
      continue;
    }
    for (std::uint32_t t = 0; t < n.own; ++t)
      set(out, tree.tokens[n.first + t]);
    if (n.count == 0)
      continue;
    if (!passed && all_follow(tree, i, next, 4096)) {
      meter::charge((n.end - n.first) / 16);
      for (auto t = n.first + n.own; t < n.end; ++t)
        set(out, tree.tokens[t]);
    } else
      enter(n, next, other, behind, passed);
  }
}

/// Where the characters of an alphabet lead from state to state, whichever they are, until none may follow: adds the
/// tokens that have others too. The mask of those that have not, or nothing if there is no such alphabet.
const token_masks::mask* token_masks::add_counted(automaton_state s, json_place place) {
  const bool apart = states_.tells_apart(s);
  for (std::size_t k = 0; k < alphabets; ++k) {
    const auto a = static_cast<alphabet>(k);
    const auto first = states_.after(s, a);
    if (first == automaton::not_uniform || first == dead_state)
      continue;
    const auto& tokens = vocabulary_.of(a);
    const auto count = states_.characters(s, a, alphabet_tokens::longest + 1);
    if (count == lexer::not_uniform)
      continue;
    auto at = s;
    for (std::size_t c = 0; apart && c < tokens.behind_count.size() && at != dead_state; ++c) {
      if (apart_.may_run_out(at, place)) // then it matters which characters
        return nullptr;
      at = states_.after(at, a);
    }
    at = s;
    for (std::size_t c = 0; c < tokens.behind_count.size() && at != dead_state; ++c) {
      if (!tokens.behind_count[c].empty())
        add(tokens.behind_count[c], at, place);
      at = states_.after(at, a);
    }
    if (at != dead_state)
      add(tokens.more, s, place);
    return &tokens.only[std::min<std::size_t>(count, alphabet_tokens::longest)];
  }
  return nullptr;
}

/// The alphabet whose characters do not leave the state.
std::optional<alphabet> token_masks::loop_of(automaton_state s) {
  for (std::size_t a = 0; a < alphabets; ++a)
    if (states_.after(s, static_cast<alphabet>(a)) == s)
      return static_cast<alphabet>(a);
  return {};
}

/// A state that some alphabet does not leave, and that most bytes lead to; or dead_state.
automaton_state token_masks::usual_successor(automaton_state s, json_place& place) {
  for (const unsigned char probe : {'~', 'Q', 'z', '0', ' '})
    if (const auto next = states_.next(s, probe); next != dead_state && loop_of(next)) {
      place.take(probe);
      return next;
    }
  return dead_state;
}

} // namespace troupe::guides
