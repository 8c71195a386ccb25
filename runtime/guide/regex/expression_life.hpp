// Which expressions match any text at all: found by searching their derivatives, and remembered. A part of `expressions`.
#pragma once

#include "runtime/guide/regex/expression_nodes.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe::guides {

class expressions;

class expression_life {
public:
  bool alive(expressions& all, expression a);

private:
  enum class mark : std::uint8_t { unknown, alive, dead, visited };

  bool is_evidently_alive(const expressions& all, expression a) const;
  bool search(expressions& all, expression a);
  std::optional<bool> alive_by_parts(expressions& all, expression a);
  mark known(expression a) const { return a < marks_.size() ? marks_[a] : mark::unknown; }
  void set(const expressions& all, expression a, mark m);

  std::vector<mark> marks_; // by expression
  int by_parts_ = 0;
};

} // namespace troupe::guides
