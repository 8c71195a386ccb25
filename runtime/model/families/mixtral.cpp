// Mixtral and gpt-oss: mixtures of experts on the attention of Mistral, and on one with sinks. SmallThinker: one whose
// router reads ahead of attention.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>

namespace troupe::families {

void read_mixtral(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 8, .default_norm_eps = 1e-5});
  read_one_window(config, model, 0);
  read_positions(config, model, {.default_context = 131072, .theta = 1000000});
  read_expert_counts(config, model, {"num_local_experts"}, 8, 2);
}

void arrange_mixtral(const model_config& model, const checkpoint& stored, arrangement& to) {
  if (!stored.find("model.layers.0.block_sparse_moe.gate.weight"))
    return; // as transformers 5 may store it
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer, "mlp.gate", "block_sparse_moe.gate");
    for (int e = 0; e < model.experts.count; ++e) {
      const auto to_stem = "mlp.experts." + std::to_string(e) + ".";
      const auto from = "block_sparse_moe.experts." + std::to_string(e) + ".";
      tensors.rename(layer, to_stem + "gate_proj", from + "w1");
      tensors.rename(layer, to_stem + "down_proj", from + "w2");
      tensors.rename(layer, to_stem + "up_proj", from + "w3");
    }
  }
}

/// Norms of whole q and k, rotation in part, and a router with a correction.
void read_minimax_m2(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 8, .default_head_dim = 128});
  const int rotated = config.integer("rotary_dim", 2, model.head_dim, model.head_dim);
  read_positions(config, model,
                 {.default_context = 196608,
                  .theta = 5000000,
                  .partial = true,
                  .default_partial = static_cast<double>(rotated) / model.head_dim});
  read_expert_counts(config, model, {"num_local_experts", "num_experts"}, 256, 8);
  model.experts.correction = model.experts.renormalise = true;
  require_word(config, "scoring_func", {"sigmoid"});
  require_word(config, "qk_norm_type", {"per_layer"});
}

void arrange_minimax_m2(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_mixtral(model, stored, to);
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer)
    for (const char* place : {"block_sparse_moe.", "mlp."})
      if (const auto name = tensors.stored(layer, std::string(place) + "e_score_correction_bias"); stored.find(name))
        tensors.add(layer, "mlp.gate.e_score_correction_bias", {.name = name});
}

namespace {

/// Reads a list of 0 and 1, one number for each layer.
std::vector<bool> read_layer_flags(const reader& config, const char* key, int layers, bool fallback) {
  const auto given = config.integers(key, 0, 1);
  if (!given)
    return std::vector<bool>(as_size(layers), fallback);
  if (given->size() != as_size(layers))
    throw failure(errc::bad_file,
                  config.label(key) + " must hold " + std::to_string(layers) + " numbers, found " +
                    std::to_string(given->size()));
  return {given->begin(), given->end()};
}

} // namespace

/// Experts behind ReLU, and lists of which layers rotate and which have a window. Dense layers, secondary and shared
/// experts are in configurations of the authors, but in no published model or code.
void read_smallthinker(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "relu");
  if (model.act.type != kernels::activation_type::relu)
    throw failure(errc::unsupported, config.label("hidden_act") + " is supported as relu only");
  read_sizes(config, model,
             {.ffn = "moe_ffn_hidden_size", .default_kv_heads = 2, .default_head_dim = 128, .tied = true});
  require(config, "use_qk_norm", false);
  require(config, "norm_topk_prob", true);
  require(config, "moe_enable_early_router", true);
  require(config, "moe_enable_secondary_experts", false);
  if (config.integer("moe_shared_primary_experts", 0, config_limits::max_experts, 0) != 0)
    throw failure(errc::unsupported, config.label("moe_shared_primary_experts") + " is supported as 0 only");
  for (const bool sparse : read_layer_flags(config, "moe_layer_layout", model.layers, true))
    if (!sparse)
      throw failure(errc::unsupported,
                    config.label("moe_layer_layout") + " asks for layers without experts, which are not supported");
  read_positions(config, model, {.default_context = 131072, .theta = 1000000});
  const auto slides = read_layer_flags(config, "sliding_window_layout", model.layers, false),
             rotates = read_layer_flags(config, "rope_layout", model.layers, true);
  const int window = config.integer("sliding_window_size", 1, config_limits::max_positions, 4096);
  for (int i = 0; i < model.layers; ++i) {
    model.windows[as_size(i)] = slides[as_size(i)] ? window : 0;
    model.unrotated.push_back(!rotates[as_size(i)]);
  }
  if (std::ranges::find(model.unrotated, true) == model.unrotated.end())
    model.unrotated.clear();
  read_expert_counts(config, model, {"moe_num_primary_experts"}, 32, 1);
  auto& experts = model.experts;
  experts.chosen = config.integer("moe_num_active_primary_experts", 1, experts.count, std::min(4, experts.count));
  experts.early = true;
  const bool softmax = config.boolean("moe_primary_router_apply_softmax", false);
  experts.scores = softmax ? router_scores::chosen : router_scores::sigmoid;
  experts.renormalise = !softmax;
}

void arrange_smallthinker(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer, "mlp.gate", "block_sparse_moe.primary_router");
    for (int e = 0; e < model.experts.count; ++e)
      for (const std::string part : {"gate", "up", "down"}) {
        const auto expert = "experts." + std::to_string(e) + "." + part;
        tensors.rename(layer, "mlp." + expert + "_proj", "block_sparse_moe." + expert);
      }
  }
}

void read_gpt_oss(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.default_kv_heads = 8, .default_head_dim = 64, .default_norm_eps = 1e-5});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", true);
  model.attention_sinks = true;
  read_alternating_windows(config, model, 128, 2);
  read_positions(config, model, {.default_context = 131072, .theta = 150000});
  if (model.rope.type == rope_type::yarn) // `max_position_embeddings` includes the scaling
    model.max_context = config.integer("max_position_embeddings", 1, 1 << 28, 131072);
  model.act = {kernels::activation_type::clamped_swiglu,
               static_cast<float>(config.number("swiglu_alpha", 1e-3, 1e3).value_or(1.702)),
               static_cast<float>(config.number("swiglu_limit", 1e-3, 1e6).value_or(7))};
  read_expert_counts(config, model, {"num_local_experts", "num_experts"}, 128, 4);
  model.experts.bias = model.experts.router_bias = true;
}

/// gate and up in turns: in MXFP4 a matrix [2 ffn, hidden] for each expert, else all as [experts, hidden, 2 ffn]; down
/// as [hidden, ffn], or all as [experts, ffn, hidden].
void arrange_gpt_oss(const model_config& model, const checkpoint& stored, arrangement& to) {
  tensor_arranger tensors(model, to);
  const auto count = as_size(model.experts.count), ffn = as_size(model.experts.ffn);
  const std::array halves{std::pair("gate_proj", tensors.rows(0, ffn, 2)),
                          std::pair("up_proj", tensors.rows(1, ffn, 2))};
  const bool separate = stored.find(tensors.stored(0, "mlp.experts.down_proj.0")) != nullptr;
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer, "mlp.gate", "mlp.router");
    for (std::size_t e = 0; e < count; ++e) {
      const auto stem = "mlp.experts." + std::to_string(e) + ".";
      const auto matrix = [&](const std::string& name, const row_order& rows) {
        stored_part part{.name = tensors.stored(layer, "mlp.experts." + name), .rows = rows};
        part.of_rows = rows ? 2 * ffn : 0;
        if (separate) {
          part.name += "." + std::to_string(e);
        } else {
          part.slices = count;
          part.slice = e;
          part.transposed = true;
        }
        return part;
      };
      const auto bias = [&](const std::string& name, const row_order& rows) {
        return stored_part{.name = tensors.stored(layer, "mlp.experts." + name + "_bias"),
                           .slices = count,
                           .slice = e,
                           .rows = rows,
                           .of_rows = rows ? 2 * ffn : 0};
      };
      for (const auto& [name, rows] : halves) {
        tensors.add(layer, stem + name + ".weight", matrix("gate_up_proj", rows));
        tensors.add(layer, stem + name + ".bias", bias("gate_up_proj", rows));
      }
      tensors.add(layer, stem + "down_proj.weight", matrix("down_proj", nullptr));
      tensors.add(layer, stem + "down_proj.bias", bias("down_proj", nullptr));
    }
  }
}

namespace {

void describe_gpt_oss(const architecture_keys& keys, model_config& model) {
  model.attention_sinks = true;
  slide(keys, model, model.windows.front(), 2, true);
  model.act = {kernels::activation_type::clamped_swiglu, 1.702f, 7};
  model.experts.bias = model.experts.router_bias = true;
  model.rope.truncate = false;
}

/// Where some layers have a window, every fourth, from the first on, has none and does not rotate.
void describe_smallthinker(const architecture_keys& keys, model_config& model) {
  const int window = model.windows.front();
  slide(keys, model, window, 4);
  for (int i = 0; window > 0 && i < model.layers; ++i)
    model.unrotated.push_back(i % 4 == 0);
  auto& experts = model.experts;
  experts.early = true;
  experts.renormalise = experts.scores == router_scores::sigmoid;
  if (!experts.renormalise)
    experts.scores = router_scores::chosen;
}

} // namespace

const family gpt_oss_family{"gpt_oss",
                            read_gpt_oss,
                            arrange_gpt_oss,
                            {{"gpt-oss", named_by_place | untruncated | experts, describe_gpt_oss}},
                            chosen};
const family minimax_m2_family{
  "minimax_m2", read_minimax_m2, arrange_minimax_m2, {{"minimax-m2", partial | routed}}, normed_whole | sigmoid};
const family mixtral_family{"mixtral", read_mixtral, arrange_mixtral, {{"llama", pairs | only_written}}, renormalises};
const family smallthinker_family{"smallthinker",
                                 read_smallthinker,
                                 arrange_smallthinker,
                                 {{"smallthinker", routed | relu, describe_smallthinker}},
                                 sigmoid};

} // namespace troupe::families
