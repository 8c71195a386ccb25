#include "runtime/guide/regex/expressions.hpp"

#include <algorithm>

namespace troupe::guides {

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
