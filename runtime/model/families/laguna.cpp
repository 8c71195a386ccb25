// Laguna: gates of heads by their softplus, more heads of queries and a rotation of their own in layers with a window,
// and experts by a sigmoid of capped logits with a correction, beside a shared one.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

using namespace config_limits;

namespace {

/// One number of heads for the layers without a window, and one for the others.
void read_heads_by_kind(const reader& config, model_config& model) {
  constexpr const char* key = "num_attention_heads_per_layer";
  const auto listed = config.integers(key, 1, max_heads);
  if (!listed)
    return;
  if (listed->size() != as_size(model.layers))
    throw failure(errc::bad_file, config.label(key) + " must hold " + std::to_string(model.layers) + " numbers");
  int heads[2] = {0, 0};
  for (int i = 0; i < model.layers; ++i) {
    auto& known = heads[model.slides(i) ? 1 : 0];
    const int given = (*listed)[as_size(i)];
    if (known > 0 && known != given)
      throw failure(errc::unsupported,
                    config.label(key) + " must be the same for all layers with a window, and for all without");
    if (given % model.kv_heads != 0)
      throw failure(errc::bad_file,
                    config.label(key) + " must hold multiples of the " + std::to_string(model.kv_heads) +
                      " heads of K and V, found " + std::to_string(given));
    known = given;
  }
  model.heads = heads[0] > 0 ? heads[0] : heads[1];
  model.local_heads = heads[1] != model.heads ? heads[1] : 0;
}

void read_rotation_by_kind(const reader& config, model_config& model) {
  const int positions = config.integer("max_position_embeddings", 1, max_positions, 131072);
  const auto parameters = config.object("rope_parameters");
  const auto of = [&](bool slides) {
    const auto given = parameters ? parameters->object(slides ? "sliding_attention" : "full_attention") : std::nullopt;
    const position_rules rules{
      .theta = slides ? 10000.0 : 500000.0, .partial = true, .default_partial = given || slides ? 1 : 0.5};
    return read_rope(config, given, model.head_dim, positions, rules);
  };
  model.rope = of(false);
  set_context(model, positions);
  if (const auto local = of(true); local != model.rope)
    model.local_rope = local;
}

void read_laguna(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.default_kv_heads = 8, .default_head_dim = 128});
  require(config, "attention_bias", false);
  model.qk_norm = model.attention_gate = model.softplus_gate = true;
  if (const auto slides = read_layer_types(config, model.layers)) {
    const int window = read_window(config, 512);
    for (int i = 0; i < model.layers; ++i)
      model.windows[as_size(i)] = (*slides)[as_size(i)] ? window : 0;
  }
  read_heads_by_kind(config, model);
  read_rotation_by_kind(config, model);
  const auto gating = config.child("gating");
  if (gating && gating->get().is_bool() ? !config.boolean("gating", true)
                                        : gating && gating->string() != "per-head" && gating->string() != "per-element")
    throw failure(errc::unsupported, config.label("gating") + ": supported are true, per-head and per-element");
  auto& experts = model.experts;
  read_expert_counts(config, model, {"num_experts", "num_local_experts"}, 256, 8);
  require(config, "moe_apply_router_weight_on_input", false);
  experts.ffn = config.integer("moe_intermediate_size", 1, max_ffn, 512);
  experts.shared_ffn = config.integer("shared_expert_intermediate_size", 1, max_ffn, 512);
  experts.scores = router_scores::sigmoid;
  experts.correction = experts.renormalise = true;
  experts.scale = static_cast<float>(config.number("moe_routed_scaling_factor", 0, 1e6).value_or(1));
  experts.cap = static_cast<float>(config.number("moe_router_logit_softcapping", 0, 1e9).value_or(0));
  if (const auto types = read_mlp_types(config, model.layers)) {
    model.sparse = *types;
  } else {
    model.sparse.assign(as_size(model.layers), true);
    model.sparse.front() = false;
  }
}

void arrange_laguna(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_qwen3_moe(model, stored, to); // experts in one tensor, if they are
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto heads = as_size(model.heads_of(layer)), dim = as_size(model.head_dim);
    const auto* const found = stored.find(tensors.stored(layer, "self_attn.g_proj.weight"));
    if (found && found->shape.size() == 2 && found->shape[0] == heads * dim)
      tensors.rename(layer, "self_attn.attn_gate", "self_attn.g_proj");
    else
      tensors.repeat_gates(layer, "self_attn.g_proj");
    if (!model.is_sparse(layer))
      continue;
    for (const std::string place : {"mlp.experts.", "mlp.gate."})
      if (const auto name = tensors.stored(layer, place + "e_score_correction_bias"); stored.find(name))
        tensors.add(layer, "mlp.gate.e_score_correction_bias", {.name = name});
    const bool plural = stored.find(tensors.stored(layer, "mlp.shared_experts.up_proj.weight")) != nullptr;
    tensors.rename_shared_experts(layer, plural ? "mlp.shared_experts" : "mlp.shared_expert");
  }
}

} // namespace

const family laguna_family{"laguna", read_laguna, arrange_laguna};

} // namespace troupe::families
