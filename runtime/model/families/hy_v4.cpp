// Hunyuan 4: DeepSeek V3.2's attention over chosen positions with sinks and gates, and residual streams that each branch
// reads and writes with weights of its own.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"
#include "runtime/support/types.hpp"

#include <cmath>

namespace troupe::families {

using namespace config_limits;

namespace {

constexpr int max_residual_streams = 16;

} // namespace

void read_hy_v4(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2, .default_norm_eps = 1e-5});
  read_latent_attention(config, model, {.plain = 192, .value = 256, .positions = 262144, .any_kv_heads = true});
  // vLLM and llama.cpp turn neighbours in published folders, of attention and indexers alike. transformers turns halves.
  const bool pairs = model.rope.interleaved = config.boolean("rope_interleave", true);
  model.attention_sinks = model.attention_gate = true;
  model.experts.scale = 2.827f;
  read_experts_of_groups(config, model, 256, 8, 768, 1, 1);
  read_groups(config, model, 1, 1);
  read_corrected_router(config, model, true);
  if (const auto limit = config.number("swiglu_limit", -1e6, 1e6).value_or(10); limit > 0) {
    model.expert_limits.assign(as_size(model.layers), static_cast<float>(limit));
    model.act.alpha = 1 / (1 + std::exp(-static_cast<float>(limit))); // gates are cut ahead of the activation
  }
  read_indexer(config, model, 16, pairs);
  model.indexer.last = true;
  model.indexer.norm_eps = model.norm_eps;
  model.hyper = {.streams = config.integer("hc_mult", 2, max_residual_streams, 4),
                 .eps = static_cast<float>(config.number("hc_eps", 0, 1).value_or(1e-6)),
                 .magnitude = static_cast<float>(config.number("hc_magnitude", 0, 1e6).value_or(2))};
  if (config.has("indexer_types"))
    read_shared_choices(config, model);
  else
    for (int i = 0; i < model.layers; ++i)
      model.indexer.shared.push_back(i % 4 != 1 && i > 0);
}

void arrange_hy_v4(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_indexed(model, stored, to);
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto rename = [&](const std::string& name, const std::string& from) { tensors.take(layer, name, from); };
    rename("self_attn.attn_gate.weight", "self_attn.linear_gate.weight");
    rename("self_attn.sinks", "self_attn.learnable_sink_param");
    for (const std::string part : {"mlp.", "mlp.shared_experts."}) // transformers writes these as attention's
      if (stored.find(tensors.stored(layer, part + "linear_gate.weight")))
        tensors.rename(layer, part == "mlp." ? "mlp.gate_proj" : "mlp.shared_expert.gate_proj", part + "linear_gate");
    for (const std::string part : {"attn", "mlp"}) {
      const auto stem = part + "_hyper_connection.", own = "hc_" + part + "_layer.hc_pre.hc_",
                 from = stored.find(tensors.stored(layer, own + "fn")) ? own : "hc_pre.hc_" + part + "_layer.hc_";
      rename(stem + "fn.weight", from + "fn");
      rename(stem + "base", from + "base");
      rename(stem + "scale", from + "scale");
    }
  }
  for (const auto& [name, from] :
       {std::pair("fn.weight", "fn"), std::pair("base", "base"), std::pair("scale", "scale")})
    for (const std::string place : {"model.hc_head.", "model.hc_pre.hc_head."})
      to.names[place + "hc_head_" + from] = std::string("model.hyper_connection_mixer.") + name;
}

const family hy_v4_family{"hy_v4", read_hy_v4, arrange_hy_v4};

} // namespace troupe::families
