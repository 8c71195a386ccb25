// Kimi Linear: delta attention that decays by channels, and latent attention without rotation in some layers.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/recurrent_reading.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::families {

using namespace config_limits;

namespace {

/// Layers are counted from 1 in `linear_attn_config`.
std::vector<std::string> kimi_layers(const reader& config, const std::optional<reader>& linear, int layers) {
  if (auto words = read_layer_words(config, "layer_types"))
    return *words;
  const auto attending = linear ? linear->integers("full_attn_layers", 1, max_layers) : std::nullopt;
  std::vector<std::string> words;
  for (int i = 0; i < layers; ++i) {
    const bool attends = attending ? std::ranges::find(*attending, i + 1) != attending->end() : i > 0 && i % 4 == 0;
    words.push_back(attends ? "full_attention" : "linear_attention");
  }
  return words;
}

void read_kimi_latents(const reader& config, model_config& model) {
  auto& latent = model.latent;
  if (config.has("q_lora_rank"))
    latent.q_rank = config.integer("q_lora_rank", 1, max_hidden, 1536);
  latent.kv_rank = config.integer("kv_lora_rank", 2, max_latent_dim, 512);
  latent.rotated = config.integer("qk_rope_head_dim", 2, max_latent_dim, 64);
  latent.plain = config.integer("qk_nope_head_dim", 1, max_hidden, 128);
  latent.value = config.integer("v_head_dim", 1, max_hidden, 128);
  model.kv_heads = 1;
  model.head_dim = latent.kv_rank + latent.rotated;
  if (latent.kv_rank % 2 != 0 || latent.rotated % 2 != 0 || model.head_dim > max_latent_dim)
    throw failure(errc::unsupported,
                  config.label("kv_lora_rank") + " and `qk_rope_head_dim` must be even, and at most " +
                    std::to_string(max_latent_dim) + " together");
  bound_latent_attention(model, config.label());
  model.unrotated.assign(as_size(model.layers), true);
  model.rope.dims = latent.rotated;
  model.attention_scale = static_cast<float>(1 / std::sqrt(double(latent.plain + latent.rotated)));
}

void read_kimi_experts(const reader& config, model_config& model) {
  auto& experts = model.experts;
  const char* chosen = config.has("num_experts_per_token") ? "num_experts_per_token" : "num_experts_per_tok";
  read_expert_counts(config, model, {"num_experts", "num_local_experts"}, 256,
                     config.integer(chosen, 1, max_experts, 8));
  experts.ffn = config.integer("moe_intermediate_size", 1, max_ffn, 1024);
  const char* shared = config.has("num_shared_experts") ? "num_shared_experts" : "n_shared_experts";
  experts.shared_ffn = static_cast<int>(
    std::min<std::int64_t>(std::int64_t{config.integer(shared, 0, max_experts, 1)} * experts.ffn, max_ffn));
  require_word(config, "moe_router_activation_func", {"sigmoid"});
  require_number(config, "moe_layer_freq", 1);
  experts.scores = router_scores::sigmoid;
  experts.correction = true;
  const char* renormalise = config.has("moe_renormalize") ? "moe_renormalize" : "norm_topk_prob";
  experts.renormalise = config.boolean(renormalise, true);
  experts.scale = static_cast<float>(config.number("routed_scaling_factor", 0, 1e6).value_or(2.446));
  const char* groups = config.has("num_expert_group") ? "num_expert_group" : "n_group";
  experts.groups = config.integer(groups, 1, max_experts, 1);
  experts.chosen_groups = config.integer("topk_group", 1, max_experts, 1);
  experts.group_by_two = true;
  if (experts.chosen > experts.count || experts.count % experts.groups != 0 || experts.chosen_groups > experts.groups ||
      experts.chosen > experts.chosen_groups * (experts.count / experts.groups))
    throw failure(errc::bad_file, config.label(groups) + " and `topk_group` do not fit the experts");
  const auto words = read_layer_words(config, "mlp_layer_types");
  if (words && words->size() != as_size(model.layers))
    throw failure(errc::bad_file, config.label("mlp_layer_types") + " must hold a string for each layer");
  const int dense = config.integer("first_k_dense_replace", 0, max_layers, 1);
  for (int i = 0; i < model.layers; ++i)
    model.sparse[as_size(i)] = words ? (*words)[as_size(i)] == "sparse" : i >= dense;
}

} // namespace

void read_kimi_linear(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2, .default_norm_eps = 1e-5});
  require(config, "attention_bias", false);
  require(config, "mla_use_nope", true);
  const char* context = config.has("model_max_length") ? "model_max_length" : "max_position_embeddings";
  model.max_context = config.integer(context, 1, max_positions, 1048576);
  const auto linear = config.object("linear_attn_config");
  const auto size = [&](const char* inner, const char* outer, int most, int fallback) {
    return linear && linear->has(inner) ? linear->integer(inner, 1, most, fallback)
                                        : config.integer(outer, 1, most, fallback);
  };
  auto& r = model.recurrent;
  r.type = recurrent_type::channel_delta;
  r.heads = r.key_heads = size("num_heads", "linear_num_heads", max_heads, 32);
  r.key_dim = r.value_dim = r.rank = size("head_dim", "linear_head_dim", max_state_dim, 128);
  r.taps = size("short_conv_kernel_size", "linear_conv_kernel_dim", max_taps, 4);
  r.norm = kernels::gate_norm::before;
  r.norm_group = r.value_dim;
  r.head_norm = r.sigmoid_gate = true;
  bound_recurrence(config.source(), model);
  set_layer_parts(config, model, "layer_types", kimi_layers(config, linear, model.layers));
  read_kimi_latents(config, model);
  read_kimi_experts(config, model);
}

void arrange_kimi_linear(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_latent_attention(model, to);
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto part = [&](const std::string& name, const std::string& from) { tensors.take(layer, name, from); };
    if (model.parts_of(layer).recurrence) {
      std::erase_if(to.tensors, [&, prefix = tensors.presented(layer, "self_attn.")](const auto& entry) {
        return entry.first.starts_with(prefix);
      });
      for (const char* name : {"q", "k", "v"}) {
        part(std::string("recurrent.") + name + "_proj.weight", std::string("self_attn.") + name + "_proj.weight");
        part(std::string("recurrent.") + name + "_conv.weight", std::string("self_attn.") + name + "_conv1d.weight");
      }
      part("recurrent.beta_proj.weight", "self_attn.b_proj.weight");
      part("recurrent.rate_down.weight", "self_attn.f_a_proj.weight");
      part("recurrent.rate_up.weight", "self_attn.f_b_proj.weight");
      part("recurrent.gate_down.weight", "self_attn.g_a_proj.weight");
      part("recurrent.gate_up.weight", "self_attn.g_b_proj.weight");
      part("recurrent.decay", "self_attn.A_log");
      part("recurrent.dt_bias", "self_attn.dt_bias");
      part("recurrent.norm.weight", "self_attn.o_norm.weight");
      part("recurrent.out_proj.weight", "self_attn.o_proj.weight");
    }
    if (!model.is_sparse(layer)) {
      if (stored.find(tensors.stored(layer, "block_sparse_moe.gate_proj.weight")))
        for (const char* name : {"gate_proj", "up_proj", "down_proj"}) // as transformers 5 writes them
          tensors.rename(layer, std::string("mlp.") + name, std::string("block_sparse_moe.") + name);
      continue;
    }
    const std::string moe = stored.find(tensors.stored(layer, "block_sparse_moe.gate.weight")) ? "block_sparse_moe."
                                                                                               : "mlp.";
    part("mlp.gate.weight", moe + "gate.weight");
    part("mlp.gate.e_score_correction_bias", moe + "gate.e_score_correction_bias");
    for (const char* name : {"gate_proj", "up_proj", "down_proj"})
      tensors.rename(layer, std::string("mlp.shared_expert.") + name, moe + "shared_experts." + name);
    for (int e = 0; e < model.experts.count; ++e) {
      const auto one = "experts." + std::to_string(e) + ".";
      tensors.rename(layer, "mlp." + one + "gate_proj", moe + one + "w1");
      tensors.rename(layer, "mlp." + one + "down_proj", moe + one + "w2");
      tensors.rename(layer, "mlp." + one + "up_proj", moe + one + "w3");
    }
  }
}

namespace {

void describe_kimi_linear(const architecture_keys& keys, model_config& model) {
  auto& r = model.recurrent;
  describe_recurrence(keys, model, recurrent_type::channel_delta);
  r.value_dim = r.key_dim;
  describe_parts(keys, model, "ssm_conv1d_q.weight");
  for (int i = 0; i < model.layers; ++i) {
    const auto blk = "blk." + std::to_string(i) + ".";
    const auto* betas = keys.tensor(blk + "ssm_beta.weight");
    const auto* low = keys.tensor(blk + "ssm_f_a.weight");
    if (!betas || !low || betas->info.shape.size() != 2 || low->info.shape.size() != 2)
      continue;
    r.heads = r.key_heads = static_cast<int>(std::min<std::size_t>(betas->info.shape[0], max_heads + 1));
    r.rank = static_cast<int>(std::min<std::size_t>(low->info.shape[0], max_ffn));
  }
  r.norm = kernels::gate_norm::before;
  r.norm_group = r.value_dim;
  r.head_norm = r.sigmoid_gate = true;
  bound_recurrence(keys.file().name(), model);
  model.unrotated.assign(as_size(model.layers), true);
  model.rope.dims = model.latent.rotated;
  model.rope.interleaved = false;
  model.attention_scale = static_cast<float>(1 / std::sqrt(double(model.latent.plain + model.latent.rotated)));
}

} // namespace

const family kimi_linear_family{"kimi_linear",
                                read_kimi_linear,
                                arrange_kimi_linear,
                                {{"kimi-linear", latent | routed, describe_kimi_linear}},
                                sigmoid};

} // namespace troupe::families
