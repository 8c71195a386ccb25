#include "tests/bench/tools/score_observer.hpp"

#include "runtime/model/measuring/forwarding_backend.hpp"
#include "runtime/model/precision.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/kv_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe {

namespace {

using kernels::tensor;

/// Keeps the keys of a text, and looks at some of its queries.
class score_backend final : public forwarding_products {
public:
  score_backend(kernels::backend& inner, std::size_t tokens, std::size_t queries, const kernels::kv_shape& shape)
    : forwarding_products(inner), every_(std::max<std::size_t>(1, tokens / queries)), layers_(as_size(shape.layers)) {}

  void rope_write_kv(const tensor& qkv, int heads, const kernels::head_norm& norm, const kernels::rope_rows& rope,
                     kernels::kv_cache& cache, int layer, const kernels::batch& step) override {
    inner_.rope_write_kv(qkv, heads, norm, rope, cache, layer, step);
    const auto [kv_heads, dim, values] = cache.shape.layer(layer);
    const auto q = as_size(heads) * as_size(dim), width = as_size(kv_heads) * as_size(dim);
    if (qkv.cols == q) // the layer reads keys of another
      return;
    auto& keys = layers_[as_size(layer)].keys;
    for (std::size_t r = 0; r < qkv.rows; ++r) {
      const auto* row = static_cast<const float*>(qkv.data) + r * qkv.stride + q;
      keys.insert(keys.end(), row, row + width);
    }
  }

  void attention(const tensor& out, const tensor& qkv, int heads, float scale, int window,
                 const kernels::kv_cache& cache, int layer, const kernels::batch& step) override {
    look(qkv, heads, {scale, window}, cache, layer, step);
    inner_.attention(out, qkv, heads, scale, window, cache, layer, step);
  }

  void shaped_attention(const tensor& out, const tensor& qkv, int heads, const kernels::attention_scores& scores,
                        const kernels::kv_cache& cache, int layer, const kernels::batch& step) override {
    look(qkv, heads, scores, cache, layer, step);
    inner_.shaped_attention(out, qkv, heads, scores, cache, layer, step);
  }

  std::vector<layer_scores> seen() {
    std::vector<layer_scores> result;
    for (auto& layer : layers_)
      result.push_back(std::move(layer.seen));
    return result;
  }

private:
  struct kept_layer {
    std::vector<float> keys; // [positions, kv_heads * dim]
    layer_scores seen;
  };

  void look(const tensor& qkv, int heads, const kernels::attention_scores& how, const kernels::kv_cache& cache,
            int layer, const kernels::batch& step) {
    auto& kept = layers_[as_size(layer)];
    const auto [kv_heads, dim, values] = cache.shape.layer(layer);
    for (const auto& s : step.sequences)
      for (std::int32_t r = 0; r < s.rows; ++r) {
        const auto position = as_size(s.first_position + r);
        if (position % every_ != every_ - 1)
          continue;
        std::size_t first = how.window > 0 && position + 1 > as_size(how.window) ? position + 1 - as_size(how.window)
                                                                                 : 0;
        if (how.chunk > 0)
          first = std::max(first, position / as_size(how.chunk) * as_size(how.chunk));
        const auto* row = static_cast<const float*>(qkv.data) + as_size(s.first_row + r) * qkv.stride;
        for (int kv = 0; kv < kv_heads; ++kv)
          look_at_group(kept, row, heads / kv_heads, kv, kv_heads, dim, how, first, position);
      }
  }

  /// The queries of a row for one KV head.
  void look_at_group(kept_layer& kept, const float* row, int group, int kv, int kv_heads, int dim,
                     const kernels::attention_scores& how, std::size_t first, std::size_t position) {
    const auto count = position + 1 - first, width = as_size(kv_heads) * as_size(dim);
    auto& seen = kept.seen;
    needed_.assign(count, 0);
    for (int g = 0; g < group; ++g) {
      const int head = kv * group + g;
      const float* q = row + as_size(head) * as_size(dim);
      scores_.resize(count);
      for (std::size_t t = 0; t < count; ++t) {
        const float* k = &kept.keys[(first + t) * width + as_size(kv) * as_size(dim)];
        float dot = 0;
        for (std::size_t d = 0; d < as_size(dim); ++d)
          dot += q[d] * k[d];
        float score = dot * how.scale;
        if (how.soft_cap > 0)
          score = how.soft_cap * std::tanh(score / how.soft_cap);
        if (how.slopes != nullptr)
          score -= how.slopes[head] * static_cast<float>(position - first - t);
        scores_[t] = score;
      }
      count_scores(seen, first, how.sinks != nullptr ? how.sinks + head : nullptr);
    }
    seen.rows += count;
    for (const auto n : needed_)
      for (std::size_t i = 0; i < small_weights.size(); ++i)
        seen.unneeded[i] += n < small_weights.size() - i;
  }

  void count_scores(layer_scores& seen, std::size_t first, const float* sink) {
    float most = sink != nullptr ? *sink : -std::numeric_limits<float>::infinity();
    for (const float s : scores_) {
      most = std::max(most, s);
      seen.least = std::min(seen.least, s);
      seen.most = std::max(seen.most, s);
      seen.sum += s;
      seen.squares += double(s) * s;
      ++seen.histogram[static_cast<int>(std::floor(std::clamp(s, -1e6f, 1e6f)))];
    }
    seen.scores += scores_.size();
    double total = sink != nullptr ? std::exp(double(*sink) - most) : 0;
    for (const float s : scores_)
      total += std::exp(double(s) - most);
    const double offset = most + std::log(total);
    if (scores_.size() > 1)
      ++seen.sums[static_cast<int>(std::floor(std::clamp(offset, -1e6, 1e6)))];
    for (const float s : scores_)
      for (std::size_t i = 0; i < small_weights.size(); ++i)
        seen.below[i] += s - offset < -small_weights[i] * std::log(2.0);
    float best_of_first = -std::numeric_limits<float>::infinity();
    for (std::size_t begin = 0; begin < scores_.size();) { // the kernels' partitions
      const auto end = std::min(scores_.size(),
                                begin + kernels::partition_tokens - (first + begin) % kernels::partition_tokens);
      const float own = *std::max_element(scores_.begin() + static_cast<std::ptrdiff_t>(begin),
                                          scores_.begin() + static_cast<std::ptrdiff_t>(end));
      if (first + begin < kernels::partition_tokens)
        best_of_first = own;
      const float best = std::max(own, best_of_first);
      for (auto t = begin; t < end; ++t) { // how many of the thresholds it reaches
        std::uint8_t reached = 0;
        for (std::size_t i = small_weights.size(); i-- > 0;)
          reached += scores_[t] - best >= static_cast<float>(-small_weights[i] * std::log(2.0));
        needed_[t] = std::max(needed_[t], reached);
      }
      begin = end;
    }
  }

  std::size_t every_;
  std::vector<kept_layer> layers_; // of the cache
  std::vector<float> scores_;
  std::vector<std::uint8_t> needed_; // thresholds that some query of the group reaches, from the smallest on
};

} // namespace

std::vector<layer_scores> observe_scores(const std::shared_ptr<const model_weights>& weights, kernels::backend& backend,
                                         std::span<const token_id> tokens, int rows, int queries,
                                         const progress_fn& progress) {
  const auto& config = weights->config;
  if (config.latent || config.encoder)
    throw failure(errc::unsupported,
                  "scores of models of the family `" + config.family +
                    "` are not looked at: their attention is latent, or reads what follows");
  if (tokens.size() < 2)
    throw failure(errc::bad_request, "a text of " + std::to_string(tokens.size()) + " tokens has no scores to look at");
  const auto context = static_cast<int>(tokens.size());
  const auto blocks = static_cast<std::size_t>(blocks_for(context));
  const auto shape = kv_shape_of(config, weights->compute, blocks);
  score_backend observed(backend, tokens.size(), std::min(tokens.size(), as_size(std::max(1, queries))), shape);
  decoder graph(weights, observed, rows, context);
  const auto cache = observed.make_kv_cache(shape);
  std::vector<std::int32_t> table(blocks);
  std::iota(table.begin(), table.end(), 0);
  for (std::size_t at = 0; at < tokens.size(); at += as_size(rows)) {
    const auto count = std::min(tokens.size() - at, as_size(rows));
    const kernels::sequence_rows step{.rows = static_cast<std::int32_t>(count),
                                      .first_position = static_cast<std::int32_t>(at),
                                      .length = static_cast<std::int32_t>(tokens.size())};
    graph.forward(tokens.subspan(at, count), {{&step, 1}, table}, {}, *cache, {});
    if (progress)
      progress(at + count, tokens.size());
  }
  return observed.seen();
}

score_center center_of(std::span<const layer_scores> layers, float reach) {
  std::map<int, std::uint64_t> all;
  std::uint64_t count = 0;
  for (const auto& layer : layers)
    for (const auto& [bin, n] : layer.histogram) {
      all[bin] += n;
      count += n;
    }
  score_center best{0, 1};
  if (count == 0)
    return best;
  const int width = std::max(1, static_cast<int>(2 * reach));
  std::uint64_t within = 0, most = 0;
  auto low = all.begin();
  for (auto high = all.begin(); high != all.end(); ++high) { // bins [low, high] of at most `width`
    within += high->second;
    for (; high->first - low->first >= width; ++low)
      within -= low->second;
    if (within > most) {
      most = within;
      best.at = 0.5f * static_cast<float>(low->first + high->first + 1);
    }
  }
  best.outside = double(count - most) / double(count);
  return best;
}

double recomputed_share(std::span<const layer_scores> layers, float unified_maximum) {
  constexpr float reach = 40; // kernels/cuda/device/attention/merge_states.cu
  std::uint64_t count = 0, outside = 0;
  for (const auto& layer : layers)
    for (const auto& [bin, n] : layer.sums) {
      count += n;
      outside += static_cast<float>(bin) < unified_maximum - reach ||
          static_cast<float>(bin + 1) > unified_maximum + reach
        ? n
        : 0;
    }
  return count > 0 ? double(outside) / double(count) : 0;
}

} // namespace troupe
