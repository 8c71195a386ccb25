// Hunyuan: q/k norm behind the rotation, whose base a constant stretches; experts with a shared one.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::families {

using namespace config_limits;

namespace {

/// `dynamic` with an `alpha` is static: it stretches the base.
bool read_stretched(const reader& config, model_config& model) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto given = config.object(key);
    const auto type = given ? given->string("rope_type").value_or(given->string("type").value_or("")) : "";
    const auto alpha = given ? given->number("alpha", 0, 1e9).value_or(0) : 0;
    if (type != "dynamic" || alpha <= 0)
      continue;
    if (model.head_dim == 2)
      throw failure(errc::unsupported, given->label("alpha") + " needs heads of more than 2 dimensions");
    const double theta =
      given->number("rope_theta", 1.000001, 1e30).value_or(config.number("rope_theta", 1.000001, 1e30).value_or(10000));
    model.rope.theta = theta * std::pow(alpha, model.head_dim / (model.head_dim - 2.0));
    model.max_context = config.integer("max_position_embeddings", 1, max_positions, 2048);
    return true;
  }
  return false;
}

/// A number, or one for each layer, which must be the same.
int same_for_all(const reader& config, const char* key, int fallback) {
  const auto given = config.integers(key, 1, max_experts);
  if (!given || given->empty())
    return fallback;
  if (!std::ranges::all_of(*given, [&](int n) { return n == given->front(); }))
    throw failure(errc::unsupported, config.label(key) + " that differs from layer to layer is not supported");
  return given->front();
}

} // namespace

void read_hunyuan_dense(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_norm_eps = 1e-5});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  if (!read_stretched(config, model))
    read_positions(config, model);
}

void read_hunyuan_moe(const reader& config, model_config& model) {
  read_hunyuan_dense(config, model);
  auto& experts = model.experts;
  experts.count = same_for_all(config, "num_experts", 1);
  experts.chosen = same_for_all(config, "moe_topk", 1);
  if (experts.chosen > experts.count)
    throw failure(errc::bad_file,
                  config.label("moe_topk") + " is " + std::to_string(experts.chosen) + ", more than the experts, " +
                    std::to_string(experts.count));
  if (std::int64_t{experts.count} * model.layers > max_layer_experts)
    throw failure(errc::unsupported,
                  config.label("num_experts") + " is " + std::to_string(experts.count) + " in each of " +
                    std::to_string(model.layers) + " layers, supported are " + std::to_string(max_layer_experts) +
                    " in all");
  experts.ffn = experts.shared_ffn = model.ffn;
  require(config, "norm_topk_prob", true);
  model.sparse.assign(static_cast<std::size_t>(model.layers), true);
}

void arrange_hunyuan(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(
      layer, {{"self_attn.q_norm", "self_attn.query_layernorm"}, {"self_attn.k_norm", "self_attn.key_layernorm"}});
    if (!model.is_sparse(layer))
      continue;
    tensors.rename(layer, "mlp.gate", "mlp.gate.wg");
    tensors.rename_shared_experts(layer, "mlp.shared_mlp");
  }
}

const family hunyuan_v1_dense_family{
  "hunyuan_v1_dense", read_hunyuan_dense, arrange_hunyuan, {{"hunyuan-dense"}}, normed_behind};
const family hunyuan_v1_moe_family{
  "hunyuan_v1_moe", read_hunyuan_moe, arrange_hunyuan, {{"hunyuan-moe", routed}}, normed_behind | renormalises};

} // namespace troupe::families
