// Ling 3 (bailing_hybrid): delta attention whose decays have a bound, with a matrix each for gates and decays, and latent
// attention with a gate for each head; DeepSeek V3's experts.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"
#include "runtime/model/families/recurrent_reading.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

using namespace config_limits;

namespace {

/// A key of Ling's files, or what transformers calls it.
const char* either(const reader& config, const char* own, const char* other) { return config.has(own) ? own : other; }

void read_ling_experts(const reader& config, model_config& model) {
  auto& experts = model.experts;
  const char* chosen = either(config, "num_experts_per_tok", "num_experts_per_token");
  read_expert_counts(config, model, {"num_experts", "num_local_experts"}, 512,
                     config.integer(chosen, 1, max_experts, 8));
  experts.ffn = config.integer("moe_intermediate_size", 1, max_ffn, 768);
  experts.shared_ffn = static_cast<int>(std::min<std::int64_t>(
    std::int64_t{config.integer(either(config, "num_shared_experts", "n_shared_experts"), 0, max_experts, 1)} *
      experts.ffn,
    max_ffn));
  experts.scores = router_scores::sigmoid;
  experts.correction = experts.group_by_two = true;
  experts.renormalise = config.boolean(either(config, "moe_renormalize", "norm_topk_prob"), true);
  experts.scale = static_cast<float>(config.number("routed_scaling_factor", 0, 1e6).value_or(2.5));
  const char* groups = either(config, "num_expert_group", "n_group");
  experts.groups = config.integer(groups, 1, max_experts, 8);
  experts.chosen_groups = config.integer("topk_group", 1, max_experts, 4);
  if (experts.chosen > experts.count || experts.count % experts.groups != 0 || experts.chosen_groups > experts.groups ||
      experts.chosen > experts.chosen_groups * (experts.count / experts.groups))
    throw failure(errc::bad_file, config.label(groups) + " and `topk_group` do not fit the experts");
  const int dense = config.integer("first_k_dense_replace", 0, max_layers, 2);
  if (const auto types = read_mlp_types(config, model.layers)) {
    model.sparse = *types;
  } else {
    for (int i = 0; i < model.layers; ++i)
      model.sparse[as_size(i)] = i >= dense;
  }
}

void read_bailing_hybrid(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 128});
  auto& r = model.recurrent;
  r.type = recurrent_type::channel_delta;
  r.heads = r.key_heads = model.heads;
  r.key_dim = r.value_dim = config.integer(either(config, "linear_head_dim", "head_dim"), 1, max_state_dim, 128);
  r.taps = config.integer("short_conv_kernel_size", 1, max_taps, 4);
  r.norm = kernels::gate_norm::before;
  r.norm_group = r.value_dim;
  r.head_norm = r.sigmoid_gate = true;
  if (config.boolean("kda_safe_gate", true))
    r.decay_bound = static_cast<float>(config.number("kda_lower_bound", -1e6, 0).value_or(-5));
  bound_recurrence(config.source(), model);
  auto words = read_layer_words(config, "layer_types");
  if (!words) {
    const int group = config.integer("layer_group_size", 1, max_layers, 6);
    words.emplace();
    for (int i = 0; i < model.layers; ++i)
      words->push_back((i + 1) % group == 0 ? "full_attention" : "linear_attention");
  }
  set_layer_parts(config, model, "layer_types", *words);
  read_latent_attention(config, model, {.positions = config.integer("model_max_length", 1, max_positions, 262144)});
  if (!config.has("q_lora_rank"))
    model.latent.q_rank = 0;
  if (const auto given = config.object("rope_parameters");
      !config.has("rope_theta") && !(given && given->has("rope_theta")))
    model.rope.theta = 6e6;
  model.attention_gate = true;
  read_ling_experts(config, model);
}

void arrange_bailing_hybrid(const model_config& model, const checkpoint& stored, arrangement& to) {
  const bool own = stored.find("model.word_embeddings.weight") != nullptr;
  const std::string attention = own ? "attention." : "self_attn.";
  arrange_qwen3_moe(model, stored, to);
  arrange_shared_experts(model, stored, to);
  arrange_latent_attention(model, to);
  tensor_arranger tensors(model, to);
  to.names["model.word_embeddings.weight"] = "model.embed_tokens.weight";
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto part = [&](const std::string& name, const std::string& from) { tensors.take(layer, name, from); };
    const auto first_of = [&](const std::string& name, std::initializer_list<const char*> places) {
      for (const char* place : places)
        if (stored.find(tensors.stored(layer, attention + place)))
          return part(name, attention + place);
    };
    const auto presented = tensors.presented(layer, "self_attn.");
    if (model.parts_of(layer).recurrence) {
      std::erase_if(to.tensors, [&](const auto& entry) { return entry.first.starts_with(presented); });
      for (const std::string name : {"q", "k", "v"}) {
        part("recurrent." + name + "_proj.weight", attention + name + "_proj.weight");
        part("recurrent." + name + "_conv.weight", attention + name + "_conv1d.weight");
      }
      part("recurrent.beta_proj.weight", attention + "b_proj.weight");
      part("recurrent.gate_proj.weight", attention + "g_proj.weight");
      part("recurrent.norm.weight", attention + "o_norm.weight");
      first_of("recurrent.rate_proj.weight", {"f_proj.weight", "forget_gate.f_proj.weight"});
      first_of("recurrent.decay", {"A_log", "forget_gate.A_log"});
      first_of("recurrent.dt_bias", {"dt_bias", "forget_gate.dt_bias"});
      first_of("recurrent.out_proj.weight", {"o_proj.weight", "dense.weight"});
    } else {
      const auto from = tensors.stored(layer, "self_attn.");
      for (auto& [name, made] : to.tensors)
        if (made.name.starts_with(from))
          made.name = tensors.stored(layer, attention + made.name.substr(from.size()));
      for (const char* name : {"q_a_proj", "q_a_layernorm", "kv_a_layernorm"})
        if (own)
          part(std::string("self_attn.") + name + ".weight", attention + name + ".weight");
      first_of("self_attn.o_proj.weight", {"o_proj.weight", "dense.weight"});
      tensors.repeat_gates(layer, attention + "g_proj");
    }
    for (const char* name : {"e_score_correction_bias", "expert_bias"})
      if (const auto from = std::string("mlp.gate.") + name; stored.find(tensors.stored(layer, from)))
        part("mlp.gate.e_score_correction_bias", from);
  }
}

} // namespace

const family bailing_hybrid_family{"bailing_hybrid", read_bailing_hybrid, arrange_bailing_hybrid};

} // namespace troupe::families
