// AFMoE (Arcee's Trinity): norms ahead of and behind attention and MLP, a gate on what heads give, rotation in layers with
// a window alone, and experts by a sigmoid with a correction, beside shared ones.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"

#include "runtime/model/config_limits.hpp"

#include <cmath>

namespace troupe::families {

void read_afmoe(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_head_dim = 128, .default_norm_eps = 1e-5});
  require(config, "attention_bias", false);
  model.attention_gate = true;
  if (config.boolean("mup_enabled", false))
    model.embedding_scale = std::sqrt(static_cast<float>(model.hidden));
  const int period = config.integer("global_attn_every_n_layers", 1, config_limits::max_layers, 4);
  read_alternating_windows(config, model, 1024, period);
  read_positions(config, model, {.default_context = 16384});
  for (const int window : model.windows)
    model.unrotated.push_back(window == 0);
  read_experts_of_groups(config, model, 64, 6, 1408, 2, 1,
                         {.shared = "num_shared_experts", .dense = "num_dense_layers", .scale = "route_scale"});
  read_corrected_router(config, model, true);
  for (const char* key : {"n_group", "topk_group", "num_expert_groups", "num_limited_groups"})
    require_number(config, key, 1);
  require_word(config, "score_func", {"sigmoid", "softmax"});
  if (config.string("score_func") == "softmax") {
    model.experts.scores = router_scores::softmax;
    model.experts.renormalise = false;
  } else {
    model.experts.renormalise = config.boolean("route_norm", true);
  }
}

void arrange_afmoe(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_shared_experts(model, stored, to);
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer,
                   {{"self_attn.attn_gate", "self_attn.gate_proj"},
                    {"pre_feedforward_layernorm", "pre_mlp_layernorm"},
                    {"post_feedforward_layernorm", "post_mlp_layernorm"}});
    if (!model.is_sparse(layer))
      continue;
    tensors.rename(layer, "mlp.gate", "mlp.router.gate");
    tensors.take(layer, "mlp.gate.e_score_correction_bias", "mlp.expert_bias");
  }
}

const family afmoe_family{"afmoe", read_afmoe, arrange_afmoe, {}, norms_both | normed_heads};

} // namespace troupe::families
