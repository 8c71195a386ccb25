// Makes the nodes of expressions. Each knows how deep it is, and none may be deeper than what the renderer's recursion
// bears.
#pragma once

#include "runtime/chat/jinja/syntax/ast.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::jinja {

constexpr unsigned max_expression = 256; // levels of the tree: a chain of operators is as deep as it is long

// -- how deep the deepest of a node's parts is ------------------------------------------------------------------------

template <class Other>
unsigned depth(const Other&) {
  return 0; // words and values
}
inline unsigned depth(const ast::expression_ptr& e) { return e ? e->depth : 0; }
template <class Key>
unsigned depth(const std::pair<Key, ast::expression_ptr>& both) {
  return std::max(depth(both.first), depth(both.second));
}
template <class Part>
unsigned depth(const std::vector<Part>& all) {
  unsigned deepest = 0;
  for (const auto& each : all)
    deepest = std::max(deepest, depth(each));
  return deepest;
}
inline unsigned depth(const ast::arguments& a) {
  return std::max({depth(a.positional), depth(a.keyword), depth(a.unpacked_list), depth(a.unpacked_dict)});
}

template <class Node, class... Parts>
ast::expression_ptr node(position at, Parts... parts) {
  const auto below = std::max({0U, depth(parts)...});
  if (below >= max_expression)
    refuse(at, "an expression is nested deeper than " + std::to_string(max_expression) + " levels");
  return std::make_unique<ast::expression>(ast::expression{at, below + 1, Node{std::move(parts)...}});
}

} // namespace troupe::jinja
