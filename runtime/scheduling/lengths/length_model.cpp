#include "runtime/scheduling/lengths/length_model.hpp"

#include "runtime/support/files/checksum.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace troupe {

namespace {

constexpr double trust = 3;         // answers that a shorter beginning's prediction counts as
constexpr double most_counted = 64; // answers of one beginning that count; older ones fade
constexpr double step = 0.2;        // of the regression
constexpr double first_share = 1;   // of each bucket, before anything was seen

constexpr std::string_view mark = "troupe lengths 1\n";

double log2_of(std::int32_t tokens) { return std::log2(static_cast<double>(std::max(tokens, 1))); }

double sum(const answer_length::shares& of) { return std::accumulate(of.begin(), of.end(), 0.0); }

/// The answer's bucket; of one that was cut, all that it may have become, as predicted.
answer_length::shares outcome(std::int32_t tokens, bool cut, const answer_length::shares& predicted) {
  answer_length::shares result{};
  const auto at = answer_length::bucket_of(tokens);
  const auto longer = std::accumulate(predicted.begin() + static_cast<std::ptrdiff_t>(at), predicted.end(), 0.0);
  if (!cut || longer <= 0) {
    result[at] = 1;
    return result;
  }
  for (auto i = at; i < result.size(); ++i)
    result[i] = predicted[i] / longer;
  return result;
}

template <class T>
void put(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
bool take(std::string_view& from, T& value) {
  if (from.size() < sizeof value)
    return false;
  std::memcpy(&value, from.data(), sizeof value);
  from.remove_prefix(sizeof value);
  return true;
}

std::uint64_t sum_of(std::string_view bytes) {
  checksum of;
  of.add(std::as_bytes(std::span(bytes.data(), bytes.size())));
  return of.value();
}

bool is_finite(const answer_length::shares& of) {
  return std::ranges::all_of(of, [](double x) { return std::isfinite(x) && x >= 0; });
}

} // namespace

length_model::length_model() { marginal_.fill(first_share); }

std::vector<length_model::feature> length_model::features_of(const length_signs& of) {
  std::vector<feature> result{{0, 1},
                              {1, log2_of(of.prompt_tokens) / 16},
                              {2, log2_of(of.most) / 16},
                              {3, of.constrained ? 1.0 : 0.0},
                              {4, of.chat ? 1.0 : 0.0},
                              {5, of.prompt_tokens > of.most ? 1.0 : 0.0}};
  std::size_t first = 6;
  for (const auto name : {of.variant, of.client}) {
    if (name != 0)
      result.push_back({first + static_cast<std::size_t>(name * 0x9E3779B97F4A7C15 >> 60), 1});
    first += named;
  }
  return result;
}

std::vector<std::uint64_t> length_model::beginnings_of(const length_signs& of) {
  std::vector<std::uint64_t> result;
  for (const auto depth : depths)
    if (of.chain.size() >= depth)
      result.push_back(of.chain[depth - 1] + depth);
  return result;
}

length_model::shares length_model::regress(const std::vector<feature>& of) const {
  shares result{};
  for (std::size_t i = 0; i < result.size(); ++i)
    for (const auto& [index, value] : of)
      result[i] += weights_[i][index] * value;
  const auto highest = *std::ranges::max_element(result);
  double all = 0;
  for (std::size_t i = 0; i < result.size(); ++i)
    all += result[i] = marginal_[i] * std::exp(std::max(result[i] - highest, -30.0));
  for (auto& each : result)
    each /= all;
  return result;
}

length_model::shares length_model::shares_for(const length_signs& of) const {
  auto result = regress(features_of(of));
  for (const auto hash : beginnings_of(of))
    if (const auto found = beginnings_.find(hash); found != beginnings_.end())
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = (found->second.counts[i] + trust * result[i]) / (found->second.all + trust);
  return result;
}

answer_length length_model::predict(const length_signs& of) const { return {shares_for(of), of.most}; }

void length_model::learn(const length_signs& of, std::int32_t tokens, bool cut, const answer_length& predicted) {
  const auto below = predicted.share_below(tokens), own = predicted.share(tokens);
  ++scores_.answers;
  scores_.log_loss -= std::log(std::max(own, 1e-6));
  scores_.marginal_log_loss -= std::log(std::max(answer_length(marginal_, of.most).share(tokens), 1e-6));
  ++scores_.deciles[std::min<std::size_t>(static_cast<std::size_t>(10 * (below + own / 2)), 9)];

  const auto features = features_of(of);
  const auto regressed = regress(features);
  const auto target = outcome(tokens, cut, regressed);
  for (std::size_t i = 0; i < target.size(); ++i)
    for (const auto& [index, value] : features) {
      const auto slope = (regressed[i] - target[i]) * value;
      auto& steep = steepness_[i][index];
      steep += slope * slope;
      if (steep > 0)
        weights_[i][index] -= step * slope / std::sqrt(steep);
    }
  const auto seen = outcome(tokens, cut, shares_for(of));
  for (const auto hash : beginnings_of(of))
    count(hash, seen);
  for (std::size_t i = 0; i < seen.size(); ++i)
    marginal_[i] += seen[i];
}

void length_model::count(std::uint64_t hash, const shares& what) {
  const auto [found, is_new] = beginnings_.try_emplace(hash);
  auto& one = found->second;
  if (is_new)
    one.place = order_.insert(order_.end(), hash);
  else
    order_.splice(order_.end(), order_, one.place);
  const auto kept = one.all < most_counted ? 1 : 1 - 1 / most_counted;
  for (std::size_t i = 0; i < what.size(); ++i)
    one.counts[i] = one.counts[i] * kept + what[i];
  one.all = sum(one.counts);
  if (beginnings_.size() > most_beginnings) {
    beginnings_.erase(order_.front());
    order_.pop_front();
  }
}

std::uint64_t length_model::seen() const {
  return static_cast<std::uint64_t>(std::max(0.0, std::round(sum(marginal_) - first_share * answer_length::buckets)));
}

std::string length_model::saved() const {
  std::string result(mark);
  put(result, weights_);
  put(result, steepness_);
  put(result, marginal_);
  for (const auto hash : order_) {
    put(result, hash);
    put(result, beginnings_.at(hash).counts);
  }
  put(result, sum_of(result));
  return result;
}

bool length_model::load(std::string_view bytes) {
  length_model fresh;
  std::uint64_t expected = 0;
  if (!bytes.starts_with(mark) || bytes.size() < mark.size() + sizeof expected)
    return false;
  auto rest = bytes.substr(bytes.size() - sizeof expected);
  take(rest, expected);
  if (sum_of(bytes.substr(0, bytes.size() - sizeof expected)) != expected)
    return false;
  rest = bytes.substr(mark.size(), bytes.size() - mark.size() - sizeof expected);
  if (!take(rest, fresh.weights_) || !take(rest, fresh.steepness_) || !take(rest, fresh.marginal_))
    return false;
  const auto usable = [](const auto& rows, bool negative) {
    return std::ranges::all_of(rows, [=](const auto& row) {
      return std::ranges::all_of(row, [=](double x) { return std::isfinite(x) && (negative || x >= 0); });
    });
  };
  if (!usable(fresh.weights_, true) || !usable(fresh.steepness_, false) || !is_finite(fresh.marginal_) ||
      sum(fresh.marginal_) <= 0 || rest.size() % (sizeof(std::uint64_t) + sizeof(shares)) != 0)
    return false;
  for (std::uint64_t hash = 0; take(rest, hash);) {
    shares counts;
    if (!take(rest, counts) || !is_finite(counts))
      return false;
    fresh.count(hash, counts);
  }
  fresh.scores_ = scores_;
  *this = std::move(fresh);
  return true;
}

} // namespace troupe
