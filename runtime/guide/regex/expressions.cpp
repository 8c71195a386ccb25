#include "runtime/guide/regex/expressions.hpp"

#include <algorithm>
#include <limits>

namespace troupe::guides {

// -- nodes --------------------------------------------------------------------

expressions::expressions(const guide_limits& limits) : limits_(limits) {
  intern({.what = kind::nothing, .nullable = false, .searches = false, .depth = 0});
  intern({.what = kind::empty, .nullable = true, .searches = false, .depth = 0});
  sets_.push_back(byte_set::all());
  const auto any = [](std::uint32_t a, std::uint64_t least) {
    return node{
      .what = kind::repeat, .nullable = true, .searches = false, .depth = 2, .a = a, .c = least, .d = unlimited};
  };
  intern(any(3, 0)); // any_text, of any byte, which follows
  intern({.what = kind::bytes, .nullable = false, .searches = false, .depth = 1, .a = 0});
}

std::uint16_t expressions::depth_over(std::size_t below) const {
  if (below >= limits_.depth)
    throw failure(errc::bad_request, "the regular expression is nested deeper than " + std::to_string(limits_.depth));
  return static_cast<std::uint16_t>(below + 1);
}

expression expressions::intern(const node& n, std::span<const expression> children) {
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
      derived_.emplace_back();
      life_.push_back(0);
      return static_cast<expression>(nodes_.size() - 1);
    });
}

// -- construction ---------------------------------------------------------------

expression expressions::bytes(const byte_set& set) {
  if (set.empty())
    return no_text;
  sets_.push_back(set);
  const auto before = nodes_.size();
  const auto result = intern({.what = kind::bytes,
                              .nullable = false,
                              .searches = false,
                              .depth = 1,
                              .a = static_cast<std::uint32_t>(sets_.size() - 1)});
  if (nodes_.size() == before)
    sets_.pop_back();
  return result;
}

expression expressions::literal(std::string_view text) {
  auto result = empty_text;
  for (auto i = text.size(); i-- > 0;)
    result = concat(bytes(byte_set::of(static_cast<unsigned char>(text[i]))), result);
  return result;
}

expression expressions::literals(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::ranges::unique(texts).begin(), texts.end());
  // The tree of texts[from, to), which agree in their first `at` bytes. An explicit stack would not be shorter: the
  // depth is that of the branchings, below the number of texts and of bytes, and is checked.
  const auto build = [&](auto& self, std::size_t from, std::size_t to, std::size_t at,
                         std::size_t depth) -> expression {
    if (to - from == 1)
      return literal(std::string_view(texts[from]).substr(at));
    depth_over(depth);
    auto common = at;
    while (common < texts[from].size() && texts[from][common] == texts[to - 1][common])
      ++common; // sorted: what the first and the last share, all share
    std::vector<expression> branches;
    auto i = from;
    if (texts[i].size() == common) {
      branches.push_back(empty_text);
      ++i;
    }
    while (i < to) {
      auto end = i + 1;
      while (end < to && texts[end][common] == texts[i][common])
        ++end;
      branches.push_back(self(self, i, end, common, depth + 1));
      i = end;
    }
    return concat(literal(std::string_view(texts[from]).substr(at, common - at)), alternation(std::move(branches)));
  };
  return texts.empty() ? no_text : build(build, 0, texts.size(), 0, 0);
}

expression expressions::concat(expression a, expression b) {
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
expression expressions::prepend(expression a, expression b) {
  const auto& first = nodes_[a];
  const auto& rest = nodes_[b];
  if (rest.what == kind::concat && a == any_text && rest.a == any_text)
    return b;
  const std::size_t below = first.nullable ? std::max(first.depth, rest.depth) : first.depth;
  return intern({.what = kind::concat,
                 .nullable = first.nullable && rest.nullable,
                 .searches = first.searches || rest.searches,
                 .depth = depth_over(below),
                 .a = a,
                 .b = b});
}

expression expressions::concat(std::initializer_list<expression> parts) {
  auto result = empty_text;
  for (auto i = parts.size(); i-- > 0;)
    result = concat(parts.begin()[i], result);
  return result;
}

/// The parts, those of the same kind opened up; sorted, without duplicates.
void expressions::flatten(kind what, std::vector<expression>& parts) const {
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

expression expressions::alternation(std::vector<expression> rest) {
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
  bool searches = false;
  std::uint16_t depth = 0;
  for (const auto e : rest) {
    searches |= nodes_[e].searches;
    depth = std::max(depth, nodes_[e].depth);
  }
  return intern({.what = kind::alternation, .nullable = nullable, .searches = searches, .depth = depth_over(depth)},
                rest);
}

expression expressions::intersection(std::vector<expression> rest) {
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
  return intern({.what = kind::intersection, .nullable = nullable, .searches = true, .depth = depth_over(depth)}, rest);
}

expression expressions::complement(expression a) {
  if (a == no_text)
    return any_text;
  if (a == any_text)
    return no_text;
  const auto& n = nodes_[a];
  if (n.what == kind::complement)
    return n.a;
  return intern(
    {.what = kind::complement, .nullable = !n.nullable, .searches = true, .depth = depth_over(n.depth), .a = a});
}

expression expressions::repeat(expression a, std::uint32_t least, std::uint32_t most) {
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
                 .searches = nodes_[a].searches,
                 .depth = depth_over(nodes_[a].depth),
                 .a = a,
                 .c = least,
                 .d = most});
}

// -- questions --------------------------------------------------------------------

bool expressions::matches(expression a, std::string_view text) {
  for (const unsigned char c : text) {
    meter::charge(3);
    auto next = no_text;
    for (const auto& p : derivatives(a))
      if (p.when.has(c))
        next = p.then;
    a = next;
  }
  return nullable(a);
}

bool expressions::alive(expression a) {
  if (a == no_text || nodes_[a].nullable)
    return a != no_text;
  if (life_[a] != 0)
    return life_[a] == 1;
  return !nodes_[a].searches || search(a);
}

/// Looks for a derivative that is evidently alive. Marks what it learns: the path to it, or all of a closed set of dead
/// ones.
bool expressions::search(expression a) {
  meter::charge(2);
  for (const auto& p : derivatives(a)) // most are alive because what follows is known to be
    if (is_evidently_alive(p.then)) {
      life_[a] = 1;
      return true;
    }
  struct visit {
    expression at;
    std::uint32_t parent;
  };
  std::vector<visit> visits{{a, 0}};
  std::size_t next_visit = 0; // in breadth: the nearest end is found first
  constexpr std::uint8_t visited = 3;
  constexpr std::size_t most_visits = 64; // before its parts are looked at
  life_[a] = visited;
  const auto found = [&](std::uint32_t i) {
    std::vector<bool> on_path(visits.size());
    for (; !on_path[i]; i = visits[i].parent)
      on_path[i] = true;
    for (std::size_t k = 0; k < visits.size(); ++k)
      life_[visits[k].at] = on_path[k] ? 1 : 0;
    return true;
  };
  try {
    bool looked_closer = false;
    while (next_visit < visits.size()) {
      if (visits.size() > most_visits && !looked_closer) {
        looked_closer = true;
        for (const auto& v : visits)
          life_[v.at] = 0;
        if (const auto alive = alive_by_parts(a))
          return *alive;
        for (const auto& v : visits)
          if (life_[v.at] == 0)
            life_[v.at] = visited;
      }
      const auto i = static_cast<std::uint32_t>(next_visit++);
      derivatives(visits[i].at);
      const auto [begin, count] = derived_[visits[i].at];
      meter::charge(2 + count);
      for (std::uint32_t k = 0; k < count; ++k) {
        const auto next = parts_[begin + k].then;
        if (is_evidently_alive(next))
          return found(i);
        if (next == no_text || life_[next] == 2 || life_[next] == visited)
          continue;
        life_[next] = visited;
        visits.push_back({next, i});
      }
    }
  } catch (...) {
    for (const auto& v : visits)
      life_[v.at] = 0;
    throw;
  }
  for (const auto& v : visits)
    life_[v.at] = 2;
  return false;
}

/// What its parts tell, where that is enough: an alternation of which one is alive, an intersection in which one
/// part excludes another (whose product with the others would be large).
std::optional<bool> expressions::alive_by_parts(expression a) {
  const auto n = nodes_[a];
  constexpr std::size_t most_parts = 12;
  if ((n.what != kind::alternation && n.what != kind::intersection) || n.b > most_parts || by_parts_ == 2)
    return {};
  const std::vector<expression> parts(children(n).begin(), children(n).end());
  std::optional<bool> result;
  ++by_parts_; // of parts of parts, no more
  if (n.what == kind::alternation)
    result = std::ranges::any_of(parts, [&](expression e) { return alive(e); });
  else
    for (std::size_t i = 0; i < parts.size() && parts.size() > 2 && !result; ++i)
      for (std::size_t k = 0; k < i && !result; ++k)
        if ((nodes_[parts[i]].what == kind::complement) != (nodes_[parts[k]].what == kind::complement) &&
            !alive(intersection(parts[i], parts[k])))
          result = false;
  --by_parts_;
  if (result)
    life_[a] = *result ? 1 : 2;
  return result;
}

std::optional<std::vector<std::string>> expressions::texts(expression a, std::size_t most) {
  constexpr std::size_t longest = 256;
  struct visit {
    expression at;
    std::string text;
  };
  std::vector<std::string> found;
  std::vector<visit> open;
  open.push_back({a, {}});
  for (std::size_t steps = 0; !open.empty(); ++steps) {
    const auto v = std::move(open.back());
    open.pop_back();
    if (nodes_[v.at].nullable)
      found.push_back(v.text);
    if (found.size() > most || v.text.size() > longest || steps > longest * most)
      return {};
    const auto parts = derivatives(v.at);
    for (const auto& p : std::vector<part>(parts.begin(), parts.end()))
      if (alive(p.then)) {
        if (static_cast<std::size_t>(p.when.count()) + open.size() > most) // each leads to a text
          return {};
        p.when.for_each([&](unsigned char b) { open.push_back({p.then, v.text + static_cast<char>(b)}); });
      }
  }
  return found;
}

} // namespace troupe::guides
