// Regular expressions over bytes, with intersection and complement, as a store of shared nodes: equal expressions have
// equal ids. Their derivatives are expressions again, so that automata are built lazily and intersections cost nothing
// in advance. Also leaves for decimal numbers (bounds, multiples), whose automata are arithmetic. A plain value; copies
// are independent. Not for concurrent use.
#pragma once

#include "runtime/guide/intern_table.hpp"
#include "runtime/guide/limits.hpp"
#include "runtime/guide/regex/byte_set.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::guides {

using expression = std::uint32_t;
inline constexpr expression no_text = 0;    // matches nothing at all
inline constexpr expression empty_text = 1; // matches the empty text
inline constexpr expression any_text = 2;   // matches every sequence of bytes
inline constexpr std::uint32_t unlimited = 0xFFFFFFFF;

/// A magnitude: no sign, no leading zeros in `whole` ("0" for zero), no trailing zeros in `fraction`.
struct decimal {
  std::string whole = "0";
  std::string fraction;
};

enum class comparison : std::uint8_t { less, at_most, greater, at_least };

class expressions {
public:
  explicit expressions(const guide_limits& limits = {});

  // -- construction; simplifies. Throws failure(bad_request) beyond the limits -----

  expression bytes(const byte_set& set);
  expression literal(std::string_view text);
  /// One of these, as a prefix tree.
  expression literals(std::vector<std::string> texts);
  expression concat(expression a, expression b);
  expression concat(std::initializer_list<expression> parts);
  expression alternation(std::vector<expression> parts);
  expression alternation(expression a, expression b) { return alternation(std::vector{a, b}); }
  expression intersection(std::vector<expression> parts);
  expression intersection(expression a, expression b) { return intersection(std::vector{a, b}); }
  expression complement(expression a);
  expression difference(expression a, expression b) { return intersection(a, complement(b)); }
  expression repeat(expression a, std::uint32_t least, std::uint32_t most);
  expression star(expression a) { return repeat(a, 0, unlimited); }
  expression optional(expression a) { return repeat(a, 0, 1); }
  /// Digits without sign or exponent, "12" or "12.5", whose value compares so with `bound`. Meant to be intersected
  /// with the syntax of numbers: it does not refuse leading zeros.
  expression compared(comparison how, const decimal& bound);
  /// Digits as in `compared`, whose value is a multiple of `step` / 10^`digits`.
  expression multiple_of(std::uint64_t step, std::uint32_t digits);

  // -- questions ------------------------------------------------------------------

  bool nullable(expression a) const { return nodes_[a].nullable; }
  /// Whether it matches any text. Memoised search over derivatives, bounded by the limits.
  bool alive(expression a);
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

  std::size_t size() const { return nodes_.size(); }

private:
  enum class kind : std::uint8_t {
    nothing,
    empty,
    bytes,
    concat,
    alternation,
    intersection,
    complement,
    repeat,
    compared,
    multiple
  };
  struct node {
    kind what;
    bool nullable;
    bool searches;       // emptiness is not evident: contains an intersection, a complement or a number
    std::uint16_t depth; // of the recursion of derivatives
    std::uint32_t a = 0, b = 0;
    std::uint64_t c = 0;
    std::uint64_t d = 0;
  };

  expression intern(const node& n, std::span<const expression> children = {});
  std::span<const expression> children(const node& n) const { return {children_.data() + n.a, n.b}; }
  void flatten(kind what, std::vector<expression>& parts) const;
  expression prepend(expression a, expression b);
  std::uint16_t depth_over(std::size_t below) const;
  void derive(expression a, std::vector<part>& out);
  void derive_concat(const node& n, std::vector<part>& out);
  void derive_compared(const node& n, std::vector<part>& out);
  void derive_multiple(const node& n, std::vector<part>& out);
  void derive_all_of(const std::vector<expression>& parts, std::vector<part>& out);
  bool is_evidently_alive(expression a) const {
    return nodes_[a].nullable || life_[a] == 1 || (a != no_text && !nodes_[a].searches);
  }
  bool search(expression a);
  std::optional<bool> alive_by_parts(expression a);

  expression compared_state(std::uint32_t bound, comparison how, std::uint32_t pos, int relation, bool fraction);
  bool holds(comparison how, int relation) const;
  int relation_at_end(const node& n) const;
  expression multiple_state(std::uint32_t digits, std::uint64_t step, std::uint64_t rest, std::int64_t after_point);

  guide_limits limits_;
  std::vector<node> nodes_;
  std::vector<expression> children_;
  std::vector<byte_set> sets_;
  std::vector<decimal> bounds_;
  intern_table table_;

  struct slice {
    std::uint32_t begin = 0, count = unlimited; // unlimited: not derived yet
  };
  std::vector<slice> derived_; // by expression, into parts_
  std::vector<part> parts_;
  int by_parts_ = 0;
  std::vector<std::uint8_t> life_; // by expression: 0 unknown, 1 alive, 2 dead
};

} // namespace troupe::guides
