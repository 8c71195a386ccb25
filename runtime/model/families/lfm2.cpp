// LFM 2: gated short convolutions beside attention, and its mixture of experts. LFM 3: windows, rotations by kind of
// layer, a gate for each head, and norms behind, too.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/recurrent_reading.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>

namespace troupe::families {

using namespace config_limits;

namespace {

/// `block_ff_dim` and `tie_embedding` are older names.
void read_lfm2_layers(const reader& config, model_config& model, const char* ffn) {
  read_sizes(config, model,
             {.ffn = ffn, .default_kv_heads = 8, .norm_eps = "norm_eps", .default_norm_eps = 1e-5, .tied = true});
  if (config.has("tie_embedding"))
    model.tied = config.boolean("tie_embedding", true);
  auto& r = model.recurrent;
  r.type = recurrent_type::short_convolution;
  r.taps = config.integer("conv_L_cache", 1, max_taps, 3);
  r.conv_bias = r.projection_bias = config.boolean("conv_bias", false);
  auto words = read_layer_words(config, "layer_types");
  if (!words) {
    const auto attending = config.integers("full_attn_idxs", 0, max_layers);
    words.emplace();
    for (int i = 0; i < model.layers; ++i)
      words->push_back(!attending || std::ranges::find(*attending, i) != attending->end() ? "full_attention" : "conv");
  }
  set_layer_parts(config, model, "layer_types", *words);
  read_positions(config, model, {.default_context = 128000, .theta = 1000000});
}

void arrange_lfm2_convolution(tensor_arranger& tensors, int layer) {
  tensors.rename(
    layer,
    {{"recurrent.in_proj", "conv.in_proj"}, {"recurrent.conv", "conv.conv"}, {"recurrent.out_proj", "conv.out_proj"}});
}

/// Matrices of the layer alike in both.
void arrange_lfm2_mixers(const model_config& model, tensor_arranger& tensors, arrangement& to) {
  to.names["model.embedding_norm.weight"] = "model.norm.weight";
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer, {{"input_layernorm", "operator_norm"}, {"post_attention_layernorm", "ffn_norm"}});
    if (model.parts_of(layer).attention)
      tensors.rename(layer,
                     {{"self_attn.q_norm", "self_attn.q_layernorm"},
                      {"self_attn.k_norm", "self_attn.k_layernorm"},
                      {"self_attn.o_proj", "self_attn.out_proj"}});
    else
      arrange_lfm2_convolution(tensors, layer);
  }
}

void arrange_lfm2_mlp(tensor_arranger& tensors, int layer, const std::string& to, const std::string& from) {
  tensors.rename(layer, to + "gate_proj", from + "w1");
  tensors.rename(layer, to + "down_proj", from + "w2");
  tensors.rename(layer, to + "up_proj", from + "w3");
}

} // namespace

/// Unless told otherwise, the MLP has two thirds of the size given, rounded up.
void read_lfm2(const reader& config, model_config& model) {
  read_lfm2_layers(config, model, config.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size");
  if (!config.boolean("block_auto_adjust_ff_dim", true))
    return;
  const int multiple = config.integer("block_multiple_of", 1, max_ffn, 256);
  const double factor = config.number("block_ffn_dim_multiplier", 0, 1e3).value_or(1);
  const auto wide = static_cast<std::int64_t>(factor * static_cast<double>(2 * std::int64_t{model.ffn} / 3));
  const auto rounded = (wide + multiple - 1) / multiple * multiple;
  if (rounded < 1 || rounded > max_ffn)
    throw failure(errc::unsupported,
                  config.label("block_ffn_dim_multiplier") + " makes MLPs of " + std::to_string(rounded) +
                    ", supported are 1 to " + std::to_string(max_ffn));
  model.ffn = static_cast<int>(rounded);
}

void read_lfm2_moe(const reader& config, model_config& model) {
  read_lfm2_layers(config, model, "intermediate_size");
  read_expert_counts(config, model, {"num_experts", "num_local_experts"}, 32, 4);
  auto& experts = model.experts;
  experts.ffn = config.integer("moe_intermediate_size", 1, max_ffn, 1792);
  experts.correction = config.boolean("use_expert_bias", true);
  experts.renormalise = config.boolean("norm_topk_prob", true);
  experts.scale = static_cast<float>(config.number("routed_scaling_factor", 0, 1e6).value_or(1));
  const int dense = config.integer("num_dense_layers", 0, max_layers, 2);
  for (int i = 0; i < model.layers; ++i)
    model.sparse[as_size(i)] = i >= dense;
}

void read_lfm3(const reader& config, model_config& model) {
  read_sizes(
    config, model,
    {.default_kv_heads = 4, .default_head_dim = 128, .norm_eps = "norm_eps", .default_norm_eps = 1e-5, .tied = true});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.norms = config.boolean("use_sandwich_norm", true) ? norm_place::both : norm_place::before;
  model.attention_gate = config.boolean("use_attention_gate", true);
  auto& r = model.recurrent;
  r.type = recurrent_type::short_convolution;
  r.taps = config.integer("conv_L_cache", 1, max_taps, 7);
  r.conv_bias = r.projection_bias = config.boolean("conv_bias", false);
  auto words = read_layer_words(config, "layer_types");
  if (!words) {
    words.emplace();
    for (int i = 0; i < model.layers; ++i)
      words->push_back(i % 4 == 2 ? "full_attention" : i % 4 == 0 && i > 0 ? "sliding_attention" : "conv");
  }
  const int window = read_window(config, 256);
  for (std::size_t i = 0; i < std::min(words->size(), model.windows.size()); ++i)
    if ((*words)[i] == "sliding_attention") {
      (*words)[i] = "full_attention";
      model.windows[i] = window;
    }
  set_layer_parts(config, model, "layer_types", *words);
  model.max_context = config.integer("max_position_embeddings", 1, max_positions, 128000);
  model.rope = read_proportional(config, "full_attention", 1000000, 0.5);
  model.local_rope = read_proportional(config, "sliding_attention", 10000, 1);
}

void arrange_lfm3(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  to.names["model.embedding_norm.weight"] = "model.norm.weight";
  const bool both = model.norms == norm_place::both;
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer,
                   {{"input_layernorm", "operator_norm"},
                    {both ? "pre_feedforward_layernorm" : "post_attention_layernorm", "ffn_norm"}});
    if (both)
      tensors.rename(
        layer, {{"post_attention_layernorm", "post_operator_norm"}, {"post_feedforward_layernorm", "post_ffn_norm"}});
    arrange_lfm2_mlp(tensors, layer, "mlp.", "feed_forward.");
    if (!model.parts_of(layer).attention)
      arrange_lfm2_convolution(tensors, layer);
    else if (model.attention_gate)
      tensors.repeat_gates(layer, "self_attn.gate_proj");
  }
}

void arrange_lfm2(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  arrange_lfm2_mixers(model, tensors, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    if (!model.is_sparse(layer)) {
      arrange_lfm2_mlp(tensors, layer, "mlp.", "feed_forward.");
      continue;
    }
    tensors.rename(layer, "mlp.gate", "feed_forward.gate");
    stored_part correction;
    correction.name = tensors.stored(layer, "feed_forward.expert_bias");
    tensors.add(layer, "mlp.gate.e_score_correction_bias", std::move(correction));
    for (int e = 0; e < model.experts.count; ++e) {
      const auto one = "experts." + std::to_string(e) + ".";
      arrange_lfm2_mlp(tensors, layer, "mlp." + one, "feed_forward." + one);
    }
  }
}

namespace {

void describe_lfm2(const architecture_keys& keys, model_config& model) {
  describe_recurrence(keys, model, recurrent_type::short_convolution);
  describe_parts(keys, model, "shortconv.conv.weight");
  model.recurrent.conv_bias = model.recurrent.projection_bias = has_of_first(keys, model, "shortconv.conv.bias");
}

} // namespace

const family lfm2_family{"lfm2", read_lfm2, arrange_lfm2, {{"lfm2", 0, describe_lfm2}}, normed_heads};
const family lfm2_moe_family{
  "lfm2_moe", read_lfm2_moe, arrange_lfm2, {{"lfm2moe", routed, describe_lfm2}}, normed_heads | sigmoid};
const family lfm3_family{"lfm3", read_lfm3, arrange_lfm3, {}, normed_heads};

} // namespace troupe::families
