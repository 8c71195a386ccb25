// OLMo 2 and 3: norms only of what attention and MLP give, and of whole q and k; OLMo 3 alternates windows. OLMo Hybrid:
// gated DeltaNets, whose layers norm what they read, between such attention. OLMoE: a mixture of experts.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/recurrent_reading.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

namespace {

void read_common(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_norm_eps = 1e-5});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
}

} // namespace

void read_olmo2(const reader& config, model_config& model) {
  read_common(config, model);
  read_positions(config, model);
}

void read_olmo3(const reader& config, model_config& model) {
  read_common(config, model);
  read_alternating_windows(config, model, 4096, 4);
  read_layer_positions(config, model, {.theta = 500000}, config.number("rope_theta", 1.000001, 1e30).value_or(500000));
}

void read_olmo_hybrid(const reader& config, model_config& model) {
  using namespace config_limits;
  read_activation(config, model, "hidden_act", "silu", true);
  read_common(config, model);
  read_positions(config, model, {.default_context = 65536});
  const auto parameters = config.object("rope_parameters");
  if (parameters && parameters->contains("rope_theta") && !parameters->has("rope_theta")) // null, as published ones
    model.unrotated.assign(as_size(model.layers), true);
  model.recurrence_normed_before = true;
  auto& r = model.recurrent;
  r.type = recurrent_type::delta;
  r.apart = true;
  r.taps = config.integer("linear_conv_kernel_dim", 1, max_taps, 4);
  r.key_heads = config.integer("linear_num_key_heads", 1, max_heads, model.heads);
  r.heads = config.integer("linear_num_value_heads", 1, max_heads, model.heads);
  r.key_dim = config.integer("linear_key_head_dim", 1, max_state_dim, 3 * model.hidden / (4 * r.key_heads));
  r.value_dim = config.integer("linear_value_head_dim", 1, max_state_dim, 2 * r.key_dim);
  r.most_learned = config.boolean("linear_allow_neg_eigval", true) ? 2.0f : 1.0f;
  r.norm = kernels::gate_norm::before;
  r.norm_eps = 1e-5f;
  r.norm_group = r.value_dim;
  r.head_norm = true;
  bound_recurrence(config.source(), model);
  auto words = read_layer_words(config, "layer_types");
  if (!words) {
    words.emplace();
    for (int i = 0; i < model.layers; ++i)
      words->push_back(i % 4 == 3 || (i + 1 == model.layers && model.layers < 4) ? "full_attention"
                                                                                 : "linear_attention");
  }
  set_layer_parts(config, model, "layer_types", *words);
}

/// Convolutions are stored as one, or by what they convolve; norms under two names.
void arrange_olmo_hybrid(const model_config& model, const checkpoint& stored, arrangement& to) {
  tensor_arranger tensors(model, to);
  const auto& r = model.recurrent;
  const auto keys = as_size(r.keys()), values = as_size(r.inner());
  for (int layer = 0; layer < model.layers; ++layer) {
    for (const auto& [name, other] : {std::pair("input_layernorm", "attention_layer_norm"),
                                      std::pair("post_attention_layernorm", "feedforward_layer_norm")})
      if (stored.find(tensors.stored(layer, std::string(other) + ".weight")))
        tensors.rename(layer, name, other);
    if (!model.parts_of(layer).recurrence)
      continue;
    tensors.rename(layer,
                   {{"recurrent.gate_proj", "linear_attn.g_proj"},
                    {"recurrent.q_proj", "linear_attn.q_proj"},
                    {"recurrent.k_proj", "linear_attn.k_proj"},
                    {"recurrent.v_proj", "linear_attn.v_proj"},
                    {"recurrent.beta_proj", "linear_attn.b_proj"},
                    {"recurrent.rate_proj", "linear_attn.a_proj"},
                    {"recurrent.out_proj", "linear_attn.o_proj"}});
    const auto part = [&](const std::string& name, const std::string& from, row_order rows = nullptr) {
      const auto of_rows = rows ? 2 * keys + values : 0;
      tensors.take(layer, "recurrent." + name, "linear_attn." + from, std::move(rows), of_rows);
    };
    part("decay", "A_log");
    part("dt_bias", "dt_bias");
    part("norm.weight", "o_norm.weight");
    const bool whole = stored.find(tensors.stored(layer, "linear_attn.conv1d.weight")) != nullptr;
    for (const auto& [name, first, count] : {std::tuple("q_conv", std::size_t{0}, keys),
                                             std::tuple("k_conv", keys, keys), std::tuple("v_conv", 2 * keys, values)})
      if (whole)
        part(std::string(name) + ".weight", "conv1d.weight", tensors.rows(first, count));
      else
        part(std::string(name) + ".weight", std::string(name) + "1d.weight");
  }
}

/// Norms ahead of attention and MLP, q, k and v cut to a magnitude, and experts whose weights keep their sum.
void read_olmoe(const reader& config, model_config& model) {
  read_common(config, model);
  model.qkv_clip = static_cast<float>(config.number("clip_qkv", 0, 1e9, true).value_or(0));
  read_positions(config, model, {.default_context = 4096});
  read_expert_counts(config, model, {"num_experts", "num_local_experts"}, 64, 8);
  model.sparse.assign(static_cast<std::size_t>(model.layers), true);
  model.experts.ffn = model.ffn;
  model.experts.renormalise = config.boolean("norm_topk_prob", false);
}

namespace {

/// OLMo 3 has windows, and scales only full attention.
void describe_olmo2(const architecture_keys& keys, model_config& model) {
  if (model.windows.front() == 0)
    return;
  model.family = "olmo3";
  slide(keys, model, model.windows.front(), 4, true);
  if (model.rope.type != rope_type::plain) {
    model.local_rope.emplace();
    model.local_rope->theta = model.rope.theta;
  }
}

} // namespace

const family olmo2_family{"olmo2", read_olmo2, nullptr, {{"olmo2", 0, describe_olmo2}}, norms_after | normed_whole};
const family olmoe_family{"olmoe", read_olmoe, arrange_qwen3_moe, {{"olmoe", experts}}, normed_whole};
const family olmo_hybrid_family{"olmo_hybrid", read_olmo_hybrid, arrange_olmo_hybrid, {}, norms_after | normed_whole};
const family olmo3_family{"olmo3", read_olmo3, nullptr, {{"olmo2", only_written}}, norms_after | normed_whole};

} // namespace troupe::families
