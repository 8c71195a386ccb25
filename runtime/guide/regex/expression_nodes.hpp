// Regular expressions over bytes, with intersection and complement, as shared nodes that are simplified as they are made:
// equal expressions have equal ids. A plain value; copies are independent. Not for concurrent use.
#pragma once

#include "runtime/guide/intern_table.hpp"
#include "runtime/guide/limits.hpp"
#include "runtime/guide/regex/byte_set.hpp"

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace troupe::guides {

using expression = std::uint32_t;
inline constexpr expression no_text = 0;    // matches nothing at all
inline constexpr expression empty_text = 1; // matches the empty text
inline constexpr expression any_text = 2;   // matches every sequence of bytes
inline constexpr std::uint32_t unlimited = 0xFFFFFFFF;

class expression_nodes {
public:
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

  explicit expression_nodes(const guide_limits& limits = {});

  // -- construction; simplifies. Throws failure(bad_request) beyond the limits -----

  expression bytes(const byte_set& set);
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

  // -- questions ------------------------------------------------------------------

  bool nullable(expression a) const { return nodes_[a].nullable; }
  kind kind_of(expression a) const { return nodes_[a].what; }
  /// Those of an alternation or an intersection, sorted; of others none. Valid until the next construction.
  std::span<const expression> parts(expression a) const;
  /// Whether it is not evident that it matches any text.
  bool is_intricate(expression a) const { return nodes_[a].intricate; }
  std::size_t size() const { return nodes_.size(); }

protected:
  struct node {
    kind what;
    bool nullable;
    bool intricate;      // contains an intersection, a complement or a number
    std::uint16_t depth; // of the recursion of derivatives
    std::uint32_t a = 0, b = 0;
    std::uint64_t c = 0;
    std::uint64_t d = 0;
  };

  expression intern(const node& n, std::span<const expression> children = {});
  std::span<const expression> children(const node& n) const { return {children_.data() + n.a, n.b}; }
  std::uint16_t depth_over(std::size_t below) const;

  std::vector<node> nodes_;
  std::vector<byte_set> sets_;

private:
  void flatten(kind what, std::vector<expression>& parts) const;
  expression prepend(expression a, expression b);

  guide_limits limits_;
  std::vector<expression> children_;
  intern_table table_;
};

} // namespace troupe::guides
