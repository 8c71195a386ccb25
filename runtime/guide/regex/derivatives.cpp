// Derivatives of expressions by their first byte (Brzozowski; as labelled partitions of the bytes, after Veanes).
#include "runtime/guide/regex/expressions.hpp"
#include "runtime/guide/regex/partition.hpp"

#include <algorithm>

namespace troupe::guides {

namespace {

using expression_partition = partition<expression>;

void overlay(expression_partition& cells, std::span<const expressions::part> parts) {
  for (const auto& p : parts)
    cells.overlay(p.when, p.then);
}

/// Joins bytes that lead to the same, drops those that lead nowhere.
void tidy(std::vector<expressions::part>& parts) {
  std::ranges::sort(parts, {}, &expressions::part::then);
  std::size_t kept = 0;
  for (const auto& p : parts)
    if (p.then == no_text)
      continue;
    else if (kept > 0 && parts[kept - 1].then == p.then)
      parts[kept - 1].when |= p.when;
    else
      parts[kept++] = p;
  parts.resize(kept);
}

constexpr auto digits = byte_set::range('0', '9');

} // namespace

std::span<const expressions::part> expressions::derivatives(expression a) {
  if (a >= derived_.size())
    derived_.resize(size());
  if (derived_[a].count == unlimited) {
    std::vector<part> out;
    derive(a, out);
    tidy(out);
    derived_[a] = {static_cast<std::uint32_t>(parts_.size()), static_cast<std::uint32_t>(out.size())};
    parts_.insert(parts_.end(), out.begin(), out.end());
  }
  return {parts_.data() + derived_[a].begin, derived_[a].count};
}

void expressions::derive(expression a, std::vector<part>& out) {
  const auto n = nodes_[a]; // a copy: construction moves nodes
  switch (n.what) {
    case kind::nothing:
    case kind::empty: return;
    case kind::bytes: out.push_back({sets_[n.a], empty_text}); return;
    case kind::concat: derive_concat(n, out); return;
    case kind::alternation: {
      expression_partition parts;
      for (std::uint32_t i = 0; i < n.b; ++i)
        overlay(parts, derivatives(children(n)[i])); // which move as derivatives are made
      for (const auto& c : parts.cells())
        out.push_back({c.when, c.count == 1 ? parts.last(c) : alternation(parts.list(c))});
      return;
    }
    case kind::intersection: derive_all_of({children(n).begin(), children(n).end()}, out); return;
    case kind::complement: {
      const auto inner = derivatives(n.a);
      std::vector<part> parts(inner.begin(), inner.end());
      auto rest = byte_set::all();
      for (const auto& p : parts) {
        rest &= ~p.when;
        out.push_back({p.when, complement(p.then)});
      }
      if (!rest.empty())
        out.push_back({rest, any_text});
      return;
    }
    case kind::repeat: {
      const auto inner = derivatives(n.a);
      std::vector<part> parts(inner.begin(), inner.end());
      const auto least = static_cast<std::uint32_t>(n.c == 0 ? 0 : n.c - 1);
      const auto most = static_cast<std::uint32_t>(n.d == unlimited ? unlimited : n.d - 1);
      const auto rest = repeat(n.a, least, most);
      for (const auto& p : parts)
        out.push_back({p.when, concat(p.then, rest)});
      return;
    }
    case kind::compared: derive_compared(n, out); return;
    case kind::multiple: derive_multiple(n, out); return;
  }
}

void expressions::derive_concat(const node& n, std::vector<part>& out) {
  const auto first = derivatives(n.a);
  std::vector<part> parts(first.begin(), first.end());
  for (auto& p : parts)
    p.then = concat(p.then, n.b);
  if (!nodes_[n.a].nullable) {
    out = std::move(parts);
    return;
  }
  expression_partition both;
  overlay(both, parts);
  overlay(both, derivatives(n.b));
  for (const auto& c : both.cells())
    out.push_back({c.when, c.count == 1 ? both.last(c) : alternation(both.list(c))});
}

void expressions::derive_all_of(const std::vector<expression>& all, std::vector<part>& out) {
  expression_partition parts;
  parts.fill();
  for (const auto e : all)
    parts.intersect(derivatives(e));
  for (const auto& c : parts.cells())
    out.push_back({c.when, intersection(parts.list(c))});
}

// -- decimal numbers ----------------------------------------------------------------
//
// A `compared` node: a = index of the bound, b = position, c = comparison, d = relation so far (1 less, 2 equal,
// 3 greater) and whether in the fraction. A `multiple` node: a = digits of the step's fraction, b = digits after the
// point so far + 1, 0 before it; c = step; d = remainder so far.

expression expressions::compared(comparison how, const decimal& bound) {
  bounds_.push_back(bound);
  return compared_state(static_cast<std::uint32_t>(bounds_.size() - 1), how, 0, 2, false);
}

bool expressions::holds(comparison how, int relation) const {
  switch (how) {
    case comparison::less: return relation < 2;
    case comparison::at_most: return relation <= 2;
    case comparison::greater: return relation > 2;
    case comparison::at_least: return relation >= 2;
  }
  return false;
}

expression expressions::compared_state(std::uint32_t bound, comparison how, std::uint32_t pos, int relation,
                                       bool fraction) {
  if (fraction && relation != 2) // decided
    return holds(how, relation) ? star(bytes(digits)) : no_text;
  node n{.what = kind::compared,
         .nullable = false,
         .intricate = true,
         .depth = 1,
         .a = bound,
         .b = pos,
         .c = static_cast<std::uint64_t>(how),
         .d = static_cast<std::uint64_t>(relation) << 1 | (fraction ? 1 : 0)};
  n.nullable = (fraction || pos > 0) && holds(how, relation_at_end(n));
  return intern(n);
}

/// How the number that has been read compares with the bound.
int expressions::relation_at_end(const node& n) const {
  const auto& bound = bounds_[n.a];
  auto relation = static_cast<int>(n.d >> 1);
  std::size_t compared_digits = n.b;
  if ((n.d & 1) == 0) {
    if (n.b != bound.whole.size())
      return n.b < bound.whole.size() ? 1 : 3;
    compared_digits = 0;
  }
  if (relation == 2 && compared_digits < bound.fraction.size())
    relation = 1; // the bound's last digit is not 0
  return relation;
}

void expressions::derive_compared(const node& n, std::vector<part>& out) {
  const auto bound = bounds_[n.a];
  const auto how = static_cast<comparison>(n.c);
  const auto relation = static_cast<int>(n.d >> 1);
  const bool fraction = (n.d & 1) != 0;
  const auto& against = fraction ? bound.fraction : bound.whole;
  for (unsigned char c = '0'; c <= '9'; ++c) {
    auto next = relation;
    auto pos = n.b;
    if (relation == 2 && (fraction || pos < against.size())) {
      const auto expected = static_cast<unsigned char>(pos < against.size() ? against[pos] : '0');
      next = c < expected ? 1 : c > expected ? 3 : 2;
    }
    if (fraction)
      pos = std::min(pos + 1, static_cast<std::uint32_t>(against.size()));
    else
      pos = std::min(pos + 1, static_cast<std::uint32_t>(against.size()) + 1);
    if (!fraction && pos > against.size())
      next = 3;
    out.push_back({byte_set::of(c), compared_state(n.a, how, pos, next, fraction)});
  }
  if (!fraction && n.b > 0) {
    const auto next = n.b < against.size() ? 1 : n.b > against.size() ? 3 : relation;
    const auto rest = compared_state(n.a, how, 0, next, true);
    out.push_back({byte_set::of('.'), rest});
  }
}

expression expressions::multiple_of(std::uint64_t step, std::uint32_t fraction_digits) {
  return multiple_state(fraction_digits, step, 0, -1);
}

expression expressions::multiple_state(std::uint32_t fraction_digits, std::uint64_t step, std::uint64_t rest,
                                       std::int64_t after_point) {
  auto scaled = rest;
  for (auto i = after_point < 0 ? 0 : after_point; i < fraction_digits; ++i)
    scaled = scaled * 10 % step;
  return intern({.what = kind::multiple,
                 .nullable = scaled == 0,
                 .intricate = true,
                 .depth = 1,
                 .a = fraction_digits,
                 .b = static_cast<std::uint32_t>(after_point + 1),
                 .c = step,
                 .d = rest});
}

void expressions::derive_multiple(const node& n, std::vector<part>& out) {
  const auto after_point = static_cast<std::int64_t>(n.b) - 1;
  for (unsigned char c = '0'; c <= '9'; ++c) {
    if (after_point >= n.a) { // only zeros follow
      if (c == '0')
        out.push_back({byte_set::of(c), multiple_state(n.a, n.c, n.d, after_point)});
      continue;
    }
    const auto rest = (n.d * 10 + (c - '0')) % n.c;
    out.push_back({byte_set::of(c), multiple_state(n.a, n.c, rest, after_point < 0 ? -1 : after_point + 1)});
  }
  if (after_point < 0)
    out.push_back({byte_set::of('.'), multiple_state(n.a, n.c, n.d, 0)});
}

} // namespace troupe::guides
