#include "runtime/sampling/groups/row_likelihoods.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

namespace {

/// Negated logits and ids, by descending logit, then by id.
std::vector<std::pair<float, token_id>> best_of(candidates& tokens, std::size_t count) {
  tokens.narrow(std::max(tokens.kth_largest(count), std::numeric_limits<float>::lowest()));
  std::vector<std::pair<float, token_id>> order;
  order.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    order.emplace_back(-tokens.logits()[i], tokens.ids()[i]);
  std::ranges::sort(order);
  order.resize(std::min(order.size(), count));
  return order;
}

} // namespace

row_likelihoods::row_likelihoods(std::span<const float> logits, std::span<const float> allowed, std::size_t count,
                                 candidates& tokens) {
  tokens.reset(logits);
  max_ = tokens.max();
  log_total_ = tokens.log_total();
  if (count == 0)
    return;
  if (allowed.data() != logits.data())
    tokens.reset(allowed);
  for (const auto& [negated, id] : best_of(tokens, count))
    likeliest_.push_back({id, logprob(-negated), logprob(-negated)});
}

void row_likelihoods::rank(std::span<const float> logits, std::size_t count, candidates& tokens) {
  likeliest_.clear();
  for (const auto& [negated, id] : best_of(tokens, count))
    likeliest_.push_back({id, logprob(logits[static_cast<std::size_t>(id)]), -negated});
}

std::vector<token_logprob> row_likelihoods::top(std::size_t count) const {
  std::vector<token_logprob> result;
  for (std::size_t i = 0; i < std::min(count, likeliest_.size()); ++i)
    result.push_back({likeliest_[i].id, static_cast<float>(likeliest_[i].logprob)});
  return result;
}

double row_likelihoods::logprob(float logit) const {
  return static_cast<double>(std::min(logit - max_, 0.f)) - log_total_;
}

} // namespace troupe
