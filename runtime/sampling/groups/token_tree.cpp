#include "runtime/sampling/groups/token_tree.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

std::uint32_t token_tree::add_row(std::vector<token_logprob> top) {
  if (!top.empty())
    rows_.push_back(std::move(top));
  return rows_.empty() ? 0 : static_cast<std::uint32_t>(rows_.size() - 1);
}

token_tree::leaf token_tree::append(leaf parent, token_id id, float logprob, std::uint32_t row) {
  nodes_.push_back({parent, id, logprob, row});
  return static_cast<leaf>(nodes_.size());
}

std::vector<sampled_token> token_tree::path(leaf last, enum sampled_token::finish finish) const {
  std::vector<sampled_token> result;
  for (auto at = last; at != root; at = nodes_[at - 1].parent) {
    const auto& from = nodes_[at - 1];
    result.push_back({from.id, from.logprob, rows_.empty() ? std::vector<token_logprob>{} : rows_[from.row]});
  }
  std::ranges::reverse(result);
  if (!result.empty())
    result.back().finish = finish;
  return result;
}

} // namespace troupe
