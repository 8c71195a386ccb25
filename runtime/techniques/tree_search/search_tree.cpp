#include "runtime/techniques/tree_search/search_tree.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr double even_prior = 0.5; // that is divided among all options alike
constexpr double unknown = 0.5;    // the value of what was never tried

} // namespace

double search_tree::promise(const entry& e, double visits) const {
  const auto mean = sum_ / static_cast<double>(std::max<std::size_t>(values_, 1));
  auto value = unknown;
  if (e.best > none)
    value = best_ > mean ? std::clamp((e.best - mean) / (best_ - mean), 0.0, 1.0) : 1;
  else if (e.visits > 0)
    value = 0;
  return value + exploration_ * e.prior * std::sqrt(visits) / (1 + e.visits + e.under_way);
}

std::optional<search_tree::node> search_tree::select() {
  node at = root;
  if (nodes_[root].open == 0)
    return std::nullopt;
  while (nodes_[at].expanded) {
    const auto& e = nodes_[at];
    const double visits = 1 + e.visits + e.under_way;
    auto best = at;
    auto promised = none;
    for (node c = e.first; c < e.first + e.options; ++c)
      if (const auto promises = promise(nodes_[c], visits); nodes_[c].open > 0 && promises > promised) {
        promised = promises;
        best = c;
      }
    at = best;
  }
  upwards(at, [](entry& e) {
    ++e.under_way;
    --e.open;
  });
  return at;
}

void search_tree::expand(node n, std::span<const option> options) {
  double sum = 0;
  for (const auto& o : options)
    sum += std::exp(o.logprob);
  const auto first = static_cast<node>(nodes_.size());
  for (const auto& o : options) {
    entry e;
    e.parent = n;
    e.token = o.token;
    e.depth = nodes_[n].depth + 1;
    e.logprob = o.logprob;
    e.prior = even_prior / static_cast<double>(options.size()) +
      (sum > 0 ? (1 - even_prior) * std::exp(o.logprob) / sum : 0);
    e.open = 1;
    nodes_.push_back(e);
  }
  nodes_[n].first = first;
  nodes_[n].options = static_cast<std::uint32_t>(options.size());
  nodes_[n].expanded = true;
  upwards(n, [more = nodes_[n].options](entry& e) { e.open += more; });
}

search_tree::node search_tree::descend(node n, std::size_t option) {
  const auto c = child(n, option);
  ++nodes_[c].under_way;
  upwards(c, [](entry& e) { --e.open; });
  return c;
}

void search_tree::add(node n, double value) {
  if (value > none) {
    sum_ += value;
    best_ = std::max(best_, value);
    ++values_;
  }
  upwards(n, [value](entry& e) {
    ++e.visits;
    e.best = std::max(e.best, value);
  });
}

void search_tree::finish(node n, double value) {
  add(n, value);
  upwards(n, [](entry& e) { --e.under_way; });
}

void search_tree::close(node n, std::size_t option, double value) {
  const auto c = child(n, option);
  add(c, value);
  upwards(c, [](entry& e) { --e.open; });
}

std::vector<token_id> search_tree::path(node n) const {
  std::vector<token_id> tokens;
  for (; n != root; n = nodes_[n].parent)
    tokens.push_back(nodes_[n].token);
  std::ranges::reverse(tokens);
  return tokens;
}

} // namespace troupe
