#include "runtime/model/model_work.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Positions that a token at position `context` - 1 attends to.
int seen(int context, int window) { return window > 0 ? std::min(context, window) : context; }

/// Sum of `seen` over contexts 1 to `tokens`.
double seen_by_all(int tokens, int window) {
  const double full = seen(tokens, window); // tokens that see everything before them
  return full * (full + 1) / 2 + (tokens - full) * full;
}

} // namespace

weight_work work_per_token(const model_weights& weights) {
  weight_work work;
  const auto add = [&](const kernels::matrix& m, std::size_t parts) {
    work.bytes += m.bytes;
    work.multiply_adds += parts * m.outputs * m.inputs;
  };
  const auto add_mlp = [&](const mlp_weights& mlp) {
    add(*mlp.gate_up, weights.config.gated ? 2 : 1);
    add(*mlp.down, 1);
  };
  for (const auto& layer : weights.layers) {
    add(*layer.qkv, 1);
    add(*layer.o, 1);
    if (!layer.mixture) {
      add_mlp(layer.mlp);
      continue;
    }
    add(*layer.mixture->router, 1);
    for (int i = 0; i < weights.config.experts.chosen; ++i) // they are alike
      add_mlp(layer.mixture->experts[static_cast<std::size_t>(i)]);
    if (layer.mixture->shared.down)
      add_mlp(layer.mixture->shared);
  }
  add(*weights.head, 1);
  return work;
}

std::size_t kv_bytes_read(const model_config& config, kernels::kv_type type, int context) {
  const auto token = static_cast<std::size_t>(config.kv_heads) * kernels::kv_bytes(type, config.head_dim);
  std::size_t bytes = 0;
  for (const int window : config.windows)
    bytes += token * static_cast<std::size_t>(seen(context, window));
  return bytes;
}

std::size_t decode_bytes(const model_weights& weights, kernels::kv_type type, int sequences, int context) {
  return work_per_token(weights).bytes +
    static_cast<std::size_t>(sequences) * kv_bytes_read(weights.config, type, context);
}

double prefill_operations(const model_config& config, int tokens) {
  const double hidden = config.hidden, q = double(config.heads) * config.head_dim,
               kv = double(config.kv_heads) * config.head_dim;
  const double parts = config.gated ? 3 : 2;
  const auto& experts = config.experts;
  double multiply_adds = tokens * config.layers * (hidden * (q + 2 * kv) + q * hidden) + hidden * config.vocab;
  for (int i = 0; i < config.layers; ++i)
    multiply_adds += tokens * hidden *
      (config.is_sparse(i) ? parts * (double(experts.chosen) * experts.ffn + experts.shared_ffn) + experts.count
                           : parts * config.ffn);
  for (const int window : config.windows)
    multiply_adds += 2 * q * seen_by_all(tokens, window);
  return 2 * multiply_adds;
}

} // namespace troupe
