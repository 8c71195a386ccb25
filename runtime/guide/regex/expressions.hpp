// Regular expressions with their derivatives, which are expressions again, so that automata are built lazily and
// intersections cost nothing in advance. Also leaves for decimal numbers (bounds, multiples), whose automata are
// arithmetic. A plain value; copies are independent. Not for concurrent use.
#pragma once

#include "runtime/guide/limits.hpp"
#include "runtime/guide/regex/byte_set.hpp"
#include "runtime/guide/regex/expression_life.hpp"
#include "runtime/guide/regex/expression_nodes.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::guides {

/// A magnitude: no sign, no leading zeros in `whole` ("0" for zero), no trailing zeros in `fraction`.
struct decimal {
  std::string whole = "0";
  std::string fraction;
};

enum class comparison : std::uint8_t { less, at_most, greater, at_least };

class expressions : public expression_nodes {
public:
  using expression_nodes::expression_nodes;

  expression literal(std::string_view text);
  /// One of these, as a prefix tree.
  expression literals(std::vector<std::string> texts);
  /// Digits without sign or exponent, "12" or "12.5", whose value compares so with `bound`. Meant to be intersected
  /// with the syntax of numbers: it does not refuse leading zeros.
  expression compared(comparison how, const decimal& bound);
  /// Digits as in `compared`, whose value is a multiple of `step` / 10^`digits`.
  expression multiple_of(std::uint64_t step, std::uint32_t digits);

  // -- questions ------------------------------------------------------------------

  /// Whether it matches any text. Memoised search over derivatives, bounded by the limits.
  bool alive(expression a) { return life_.alive(*this, a); }
  bool matches(expression a, std::string_view text);
  /// All texts that it matches, if they are at most `most` and short.
  std::optional<std::vector<std::string>> texts(expression a, std::size_t most);

  struct part {
    byte_set when;
    expression then;
  };
  /// The derivatives by the first byte: disjoint sets; bytes in none of them lead to `no_text`. Valid until the next
  /// call of a function that is not const.
  std::span<const part> derivatives(expression a);

private:
  void derive(expression a, std::vector<part>& out);
  void derive_concat(const node& n, std::vector<part>& out);
  void derive_compared(const node& n, std::vector<part>& out);
  void derive_multiple(const node& n, std::vector<part>& out);
  void derive_all_of(const std::vector<expression>& parts, std::vector<part>& out);
  expression compared_state(std::uint32_t bound, comparison how, std::uint32_t pos, int relation, bool fraction);
  bool holds(comparison how, int relation) const;
  int relation_at_end(const node& n) const;
  expression multiple_state(std::uint32_t digits, std::uint64_t step, std::uint64_t rest, std::int64_t after_point);

  std::vector<decimal> bounds_;

  struct slice {
    std::uint32_t begin = 0, count = unlimited; // unlimited: not derived yet
  };
  std::vector<slice> derived_; // by expression, into parts_
  std::vector<part> parts_;
  expression_life life_;
};

} // namespace troupe::guides
