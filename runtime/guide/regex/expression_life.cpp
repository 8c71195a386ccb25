#include "runtime/guide/regex/expression_life.hpp"

#include "runtime/guide/regex/expressions.hpp"

#include <algorithm>

namespace troupe::guides {

using kind = expression_nodes::kind;

bool expression_life::is_evidently_alive(const expressions& all, expression a) const {
  return all.nullable(a) || known(a) == mark::alive || (a != no_text && !all.is_intricate(a));
}

void expression_life::set(const expressions& all, expression a, mark m) {
  if (a >= marks_.size())
    marks_.resize(all.size());
  marks_[a] = m;
}

bool expression_life::alive(expressions& all, expression a) {
  if (a == no_text || all.nullable(a))
    return a != no_text;
  if (known(a) != mark::unknown)
    return known(a) == mark::alive;
  return !all.is_intricate(a) || search(all, a);
}

/// Looks for a derivative that is evidently alive. Marks what it learns: the path to it, or all of a closed set of dead
/// ones.
bool expression_life::search(expressions& all, expression a) {
  meter::charge(2);
  for (const auto& p : all.derivatives(a)) // most are alive because what follows is known to be
    if (is_evidently_alive(all, p.then)) {
      set(all, a, mark::alive);
      return true;
    }
  struct visit {
    expression at;
    std::uint32_t parent;
  };
  std::vector<visit> visits{{a, 0}};
  std::size_t next_visit = 0;             // in breadth: the nearest end is found first
  constexpr std::size_t most_visits = 64; // before its parts are looked at
  set(all, a, mark::visited);
  const auto found = [&](std::uint32_t i) {
    std::vector<bool> on_path(visits.size());
    for (; !on_path[i]; i = visits[i].parent)
      on_path[i] = true;
    for (std::size_t k = 0; k < visits.size(); ++k)
      marks_[visits[k].at] = on_path[k] ? mark::alive : mark::unknown;
    return true;
  };
  try {
    bool looked_closer = false;
    while (next_visit < visits.size()) {
      if (visits.size() > most_visits && !looked_closer) {
        looked_closer = true;
        for (const auto& v : visits)
          marks_[v.at] = mark::unknown;
        if (const auto alive = alive_by_parts(all, a))
          return *alive;
        for (const auto& v : visits)
          if (marks_[v.at] == mark::unknown)
            marks_[v.at] = mark::visited;
      }
      const auto i = static_cast<std::uint32_t>(next_visit++);
      const auto parts = all.derivatives(visits[i].at);
      meter::charge(2 + parts.size());
      for (const auto& p : parts) {
        if (is_evidently_alive(all, p.then))
          return found(i);
        if (p.then == no_text || known(p.then) == mark::dead || known(p.then) == mark::visited)
          continue;
        set(all, p.then, mark::visited);
        visits.push_back({p.then, i});
      }
    }
  } catch (...) {
    for (const auto& v : visits)
      marks_[v.at] = mark::unknown;
    throw;
  }
  for (const auto& v : visits)
    marks_[v.at] = mark::dead;
  return false;
}

/// What its parts tell, where that is enough: an alternation of which one is alive, an intersection in which one
/// part excludes another (whose product with the others would be large).
std::optional<bool> expression_life::alive_by_parts(expressions& all, expression a) {
  constexpr std::size_t most_parts = 12;
  const auto of = all.parts(a);
  if (of.empty() || of.size() > most_parts || by_parts_ == 2)
    return {};
  const std::vector<expression> parts(of.begin(), of.end());
  const auto negated = [&](expression e) { return all.kind_of(e) == kind::complement; };
  std::optional<bool> result;
  ++by_parts_; // of parts of parts, no more
  if (all.kind_of(a) == kind::alternation)
    result = std::ranges::any_of(parts, [&](expression e) { return alive(all, e); });
  else
    for (std::size_t i = 0; i < parts.size() && parts.size() > 2 && !result; ++i)
      for (std::size_t k = 0; k < i && !result; ++k)
        if (negated(parts[i]) != negated(parts[k]) && !alive(all, all.intersection(parts[i], parts[k])))
          result = false;
  --by_parts_;
  if (result)
    set(all, a, *result ? mark::alive : mark::dead);
  return result;
}

} // namespace troupe::guides
