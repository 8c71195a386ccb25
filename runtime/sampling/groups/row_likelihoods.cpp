#include "runtime/sampling/groups/row_likelihoods.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

row_likelihoods::row_likelihoods(std::span<const float> logits, std::span<const float> allowed, std::size_t count,
                                 candidates& tokens) {
  tokens.reset(logits);
  max_ = tokens.max();
  log_total_ = tokens.log_total();
  if (count == 0)
    return;
  if (allowed.data() != logits.data())
    tokens.reset(allowed);
  tokens.narrow(std::max(tokens.kth_largest(count), std::numeric_limits<float>::lowest()));
  std::vector<std::pair<float, token_id>> order;
  order.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    order.emplace_back(-tokens.logits()[i], tokens.ids()[i]); // by descending logit, then by id
  std::ranges::sort(order);
  order.resize(std::min(order.size(), count));
  for (const auto& [negated, id] : order)
    likeliest_.push_back({id, logprob(-negated)});
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
