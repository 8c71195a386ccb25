// LongCat Flash: two latent attentions and two MLPs a layer, which are two layers here. Experts, some of which give what
// they read, read what the first MLP reads and are added behind the second one.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"
#include "runtime/support/types.hpp"

#include <cmath>

namespace troupe::families {

using namespace config_limits;

namespace {

void read_longcat(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model,
             {.layers = "num_layers",
              .kv_heads = nullptr,
              .ffn = config.has("ffn_hidden_size") ? "ffn_hidden_size" : "intermediate_size",
              .default_head_dim = 2,
              .default_norm_eps = 1e-5});
  if (model.layers > max_layers / 2)
    throw failure(errc::unsupported,
                  config.label("num_layers") + " is " + std::to_string(model.layers) + ", supported are " +
                    std::to_string(max_layers / 2));
  model.layers *= 2;
  model.windows.assign(as_size(model.layers), 0);
  read_latent_attention(config, model, {.positions = 131072});
  if (const auto given = config.object("rope_parameters");
      !config.has("rope_theta") && !(given && given->has("rope_theta")))
    model.rope.theta = 1e7;
  auto& experts = model.experts;
  const auto chosen = config.integer("moe_topk", 1, max_experts);
  read_expert_counts(config, model, {"n_routed_experts", "num_local_experts"}, 512, 1);
  experts.nulls = config.integer("zero_expert_num", 0, max_experts - experts.count, 256);
  require_word(config, "zero_expert_type", {"identity"});
  experts.count += experts.nulls;
  experts.chosen = chosen ? *chosen : config.integer("num_experts_per_tok", 1, max_experts, 12);
  if (experts.chosen > experts.count)
    throw failure(errc::bad_file,
                  config.label("moe_topk") + " is " + std::to_string(experts.chosen) + ", more than the experts, " +
                    std::to_string(experts.count));
  const char* ffn = config.has("expert_ffn_hidden_size") ? "expert_ffn_hidden_size" : "moe_intermediate_size";
  experts.ffn = config.integer(ffn, 1, max_ffn, 2048);
  experts.scale = static_cast<float>(config.number("routed_scaling_factor", 0, 1e6).value_or(6));
  experts.correction = experts.shortcut = true;
  experts.router_bias = config.boolean("router_bias", false);
  require(config, "norm_topk_prob", false);
  model.sparse.clear();
  for (int i = 0; i < model.layers; ++i)
    model.sparse.push_back(i % 2 == 0);
}

/// What is made of the queries' and the other latents is scaled by how much narrower these are than the hidden state: so
/// are the weights of their norms.
void arrange_longcat(const model_config& model, const checkpoint&, arrangement& to) {
  arrange_latent_attention(model, to);
  const auto root = [&](int rank) { return static_cast<float>(std::sqrt(double(model.hidden) / rank)); };
  tensor_arranger tensors(model, to);
  const int computed = model.experts.count - model.experts.nulls;
  for (int i = 0; i < model.layers; ++i) {
    const auto half = "." + std::to_string(i % 2), whole = "model.layers." + std::to_string(i / 2) + ".";
    const auto present = [&](const std::string& name, const std::string& from, float factor = 1) {
      auto& part = to.tensors[tensors.presented(i, name)];
      part.name = whole + from;
      part.factor = factor;
    };
    for (const std::string name : {"input_layernorm", "post_attention_layernorm"})
      present(name + ".weight", name + half + ".weight");
    for (const std::string name : {"gate_proj", "up_proj", "down_proj"})
      present("mlp." + name + ".weight", "mlps" + half + "." + name + ".weight");
    const auto attention = "self_attn" + half + ".";
    for (const std::string name : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"})
      present("self_attn." + name + ".weight", attention + name + ".weight");
    present("self_attn.q_a_layernorm.weight", attention + "q_a_layernorm.weight", root(model.latent.q_rank));
    present("self_attn.kv_a_layernorm.weight", attention + "kv_a_layernorm.weight", root(model.latent.kv_rank));
    for (int h = 0; h < model.heads; ++h)
      for (const std::string name : {"latent_key.", "latent_value."})
        present("self_attn." + name + std::to_string(h) + ".weight", attention + "kv_b_proj.weight");
    if (i % 2 != 0)
      continue;
    present("mlp.gate.weight", "mlp.router.classifier.weight");
    if (model.experts.router_bias)
      present("mlp.gate.bias", "mlp.router.classifier.bias");
    present("mlp.gate.e_score_correction_bias", "mlp.router.e_score_correction_bias");
    for (int e = 0; e < computed; ++e)
      for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
        const auto one = "mlp.experts." + std::to_string(e) + "." + name + ".weight";
        present(one, one);
      }
  }
}

} // namespace

const family longcat_flash_family{"longcat_flash", read_longcat, arrange_longcat};

} // namespace troupe::families
