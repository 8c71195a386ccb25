#include "runtime/guide/regex/expression_nodes.hpp"

#include <algorithm>

namespace troupe::guides {

// -- nodes --------------------------------------------------------------------

expression_nodes::expression_nodes(const guide_limits& limits) : limits_(limits) {
  intern({.what = kind::nothing, .nullable = false, .intricate = false, .depth = 0});
  intern({.what = kind::empty, .nullable = true, .intricate = false, .depth = 0});
  sets_.push_back(byte_set::all());
  const auto any = [](std::uint32_t a, std::uint64_t least) {
    return node{
      .what = kind::repeat, .nullable = true, .intricate = false, .depth = 2, .a = a, .c = least, .d = unlimited};
  };
  intern(any(3, 0)); // any_text, of any byte, which follows
  intern({.what = kind::bytes, .nullable = false, .intricate = false, .depth = 1, .a = 0});
}

std::uint16_t expression_nodes::depth_over(std::size_t below) const {
  if (below >= limits_.depth)
    throw failure(errc::bad_request, "the regular expression is nested deeper than " + std::to_string(limits_.depth));
  return static_cast<std::uint16_t>(below + 1);
}

expression expression_nodes::intern(const node& n, std::span<const expression> children) {
  const bool listed = n.what == kind::alternation || n.what == kind::intersection;
  meter::charge(3 + children.size());
  auto hash = hash_mix(static_cast<std::uint64_t>(n.what), n.c);
  hash = hash_mix(hash, n.d);
  if (listed)
    for (const auto e : children)
      hash = hash_mix(hash, e);
  else if (n.what == kind::bytes)
    for (const auto w : sets_[n.a].words())
      hash = hash_mix(hash, w);
  else
    hash = hash_mix(hash, std::uint64_t(n.a) << 32 | n.b);
  return table_.find_or_add(
    hash,
    [&](std::uint32_t id) {
      const auto& m = nodes_[id];
      if (m.what != n.what || m.c != n.c || m.d != n.d)
        return false;
      if (listed)
        return std::ranges::equal(this->children(m), children);
      if (n.what == kind::bytes)
        return sets_[m.a] == sets_[n.a];
      return m.a == n.a && m.b == n.b;
    },
    [&] {
      if (nodes_.size() >= limits_.expressions)
        too_large("regular expressions", limits_.expressions);
      auto stored = n;
      if (listed) {
        stored.a = static_cast<std::uint32_t>(children_.size());
        stored.b = static_cast<std::uint32_t>(children.size());
        children_.insert(children_.end(), children.begin(), children.end());
      }
      nodes_.push_back(stored);
      return static_cast<expression>(nodes_.size() - 1);
    });
}

// -- construction ---------------------------------------------------------------

expression expression_nodes::bytes(const byte_set& set) {
  if (set.empty())
    return no_text;
  sets_.push_back(set);
  const auto before = nodes_.size();
  const auto result = intern({.what = kind::bytes,
                              .nullable = false,
                              .intricate = false,
                              .depth = 1,
                              .a = static_cast<std::uint32_t>(sets_.size() - 1)});
  if (nodes_.size() == before)
    sets_.pop_back();
  return result;
}

expression expression_nodes::concat(expression a, expression b) {
  if (a == no_text || b == no_text)
    return no_text;
  if (a == empty_text)
    return b;
  if (b == empty_text || (a == any_text && b == any_text))
    return a;
  if (nodes_[a].what != kind::concat)
    return prepend(a, b);
  std::vector<expression> spine; // of a, which nests to the right
  for (; nodes_[a].what == kind::concat; a = nodes_[a].b)
    spine.push_back(nodes_[a].a);
  b = prepend(a, b);
  for (auto i = spine.size(); i-- > 0;)
    b = prepend(spine[i], b);
  return b;
}

/// Concatenates `a`, which is itself no concatenation, and `b`.
expression expression_nodes::prepend(expression a, expression b) {
  const auto& first = nodes_[a];
  const auto& rest = nodes_[b];
  if (rest.what == kind::concat && a == any_text && rest.a == any_text)
    return b;
  const std::size_t below = first.nullable ? std::max(first.depth, rest.depth) : first.depth;
  return intern({.what = kind::concat,
                 .nullable = first.nullable && rest.nullable,
                 .intricate = first.intricate || rest.intricate,
                 .depth = depth_over(below),
                 .a = a,
                 .b = b});
}

expression expression_nodes::concat(std::initializer_list<expression> parts) {
  auto result = empty_text;
  for (auto i = parts.size(); i-- > 0;)
    result = concat(parts.begin()[i], result);
  return result;
}

/// The parts, those of the same kind opened up; sorted, without duplicates.
void expression_nodes::flatten(kind what, std::vector<expression>& parts) const {
  const auto is_listed = [&](expression e) { return nodes_[e].what == what; };
  if (std::ranges::any_of(parts, is_listed)) {
    std::vector<expression> all;
    for (const auto p : parts)
      if (is_listed(p))
        all.insert(all.end(), children(nodes_[p]).begin(), children(nodes_[p]).end());
      else
        all.push_back(p);
    parts = std::move(all);
  }
  meter::charge(4 * parts.size());
  std::ranges::sort(parts);
  parts.erase(std::ranges::unique(parts).begin(), parts.end());
}

expression expression_nodes::alternation(std::vector<expression> rest) {
  flatten(kind::alternation, rest);
  if (std::ranges::binary_search(rest, any_text))
    return any_text;
  byte_set single;
  bool nullable = false, has_empty = false;
  std::erase_if(rest, [&](expression e) {
    const auto& n = nodes_[e];
    if (n.what == kind::bytes)
      single |= sets_[n.a];
    else if (e == empty_text)
      has_empty = true;
    else if (e != no_text) {
      nullable |= n.nullable;
      return false;
    }
    return true;
  });
  if (!single.empty())
    rest.push_back(bytes(single));
  if (has_empty && !nullable) {
    rest.push_back(empty_text);
    nullable = true;
  }
  if (rest.size() < 2)
    return rest.empty() ? no_text : rest.front();
  std::ranges::sort(rest);
  bool intricate = false;
  std::uint16_t depth = 0;
  for (const auto e : rest) {
    intricate |= nodes_[e].intricate;
    depth = std::max(depth, nodes_[e].depth);
  }
  return intern({.what = kind::alternation, .nullable = nullable, .intricate = intricate, .depth = depth_over(depth)},
                rest);
}

expression expression_nodes::intersection(std::vector<expression> rest) {
  flatten(kind::intersection, rest);
  if (std::ranges::binary_search(rest, no_text))
    return no_text;
  auto single = byte_set::all();
  bool has_single = false, nullable = true, has_empty = false;
  std::erase_if(rest, [&](expression e) {
    const auto& n = nodes_[e];
    nullable &= n.nullable;
    has_empty |= e == empty_text;
    if (n.what == kind::bytes) {
      single &= sets_[n.a];
      has_single = true;
    }
    return n.what == kind::bytes || e == any_text;
  });
  if (has_empty)
    return nullable ? empty_text : no_text;
  if (has_single) {
    if (single.empty())
      return no_text;
    rest.push_back(bytes(single));
    std::ranges::sort(rest);
  }
  if (rest.size() < 2)
    return rest.empty() ? any_text : rest.front();
  std::uint16_t depth = 0;
  for (const auto e : rest) {
    depth = std::max(depth, nodes_[e].depth);
    if (nodes_[e].what == kind::complement && std::ranges::binary_search(rest, nodes_[e].a))
      return no_text;
  }
  return intern({.what = kind::intersection, .nullable = nullable, .intricate = true, .depth = depth_over(depth)},
                rest);
}

expression expression_nodes::complement(expression a) {
  if (a == no_text)
    return any_text;
  if (a == any_text)
    return no_text;
  const auto& n = nodes_[a];
  if (n.what == kind::complement)
    return n.a;
  return intern(
    {.what = kind::complement, .nullable = !n.nullable, .intricate = true, .depth = depth_over(n.depth), .a = a});
}

expression expression_nodes::repeat(expression a, std::uint32_t least, std::uint32_t most) {
  if (a == no_text)
    return least == 0 ? empty_text : no_text;
  if (a == empty_text || most == 0)
    return empty_text;
  if (nodes_[a].nullable)
    least = 0;
  if (nodes_[a].what == kind::repeat && nodes_[a].c == 0) { // (x*)* and (x?)*
    if (nodes_[a].d == unlimited)
      return a;
    if (nodes_[a].d == 1)
      a = nodes_[a].a;
  }
  if (least == 1 && most == 1)
    return a;
  return intern({.what = kind::repeat,
                 .nullable = least == 0,
                 .intricate = nodes_[a].intricate,
                 .depth = depth_over(nodes_[a].depth),
                 .a = a,
                 .c = least,
                 .d = most});
}

std::span<const expression> expression_nodes::parts(expression a) const {
  const auto& n = nodes_[a];
  return n.what == kind::alternation || n.what == kind::intersection ? children(n) : std::span<const expression>();
}

} // namespace troupe::guides
