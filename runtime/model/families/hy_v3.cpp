// Hunyuan 3: q/k norm, and experts by a sigmoid with a correction, beside a shared one.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"

namespace troupe::families {

void read_hy_v3(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 8, .default_head_dim = 128, .default_norm_eps = 1e-5});
  require(config, "mlp_bias", false);
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  read_positions(config, model, {.default_context = 131072, .theta = 11158840});
  model.experts.scale = 2.826f;
  read_experts_of_groups(config, model, 192, 8, 1536, 1, 1,
                         {.shared = "num_shared_experts", .scale = "router_scaling_factor"});
  read_corrected_router(config, model, true);
  require(config, "moe_router_use_sigmoid", true);
  require(config, "qk_norm", true);
  model.experts.renormalise = config.boolean("route_norm", true);
  model.experts.correction = config.boolean("moe_router_enable_expert_bias", true);
}

void arrange_hy_v3(const model_config& model, const checkpoint& stored, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    if (!model.is_sparse(layer))
      continue;
    tensors.rename(layer, "mlp.gate", "mlp.router.gate");
    tensors.rename_shared_experts(layer, "mlp.shared_mlp");
    if (const auto name = tensors.stored(layer, "mlp.expert_bias"); stored.find(name))
      tensors.add(layer, "mlp.gate.e_score_correction_bias", {.name = name});
  }
}

const family hy_v3_family{"hy_v3", read_hy_v3, arrange_hy_v3, {}, normed_heads};

} // namespace troupe::families
