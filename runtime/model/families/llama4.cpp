// Llama 4. Layers that rotate see only their chunk of positions; the others see all and scale their queries with the
// position. The inputs of experts are weighed, and one expert is shared.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>

namespace troupe::families {

using namespace config_limits;

namespace {

void read_rotated_layers(const reader& config, model_config& model) {
  const int interval = config.integer("no_rope_layer_interval", 1, max_layers, 4);
  // 1: the layer is rotated
  const auto rotated = config.integers("no_rope_layers", 0, 1).value_or(std::vector<std::int32_t>{});
  if (!rotated.empty() && rotated.size() < as_size(model.layers))
    throw failure(errc::bad_file,
                  config.label("no_rope_layers") + " must hold " + std::to_string(model.layers) + " numbers, found " +
                    std::to_string(rotated.size()));
  for (int i = 0; i < model.layers; ++i)
    model.unrotated.push_back(!rotated.empty() ? rotated[as_size(i)] == 0 : (i + 1) % interval == 0);
}

/// `layer_types`, or chunks in layers that rotate. A null `attention_chunk_size` is none.
void read_chunks(const reader& config, model_config& model) {
  const bool off = config.contains("attention_chunk_size") && !config.has("attention_chunk_size");
  const int chunk = off ? 0 : config.integer("attention_chunk_size", 1, max_positions, 8192);
  const auto types = config.child("layer_types");
  const auto listed = types ? types->items() : std::vector<reader>{};
  if (types && listed.size() != as_size(model.layers))
    throw failure(errc::bad_file,
                  config.label("layer_types") + " must be an array of " + std::to_string(model.layers) + " strings");
  for (int i = 0; i < model.layers; ++i) {
    bool chunked = !model.is_unrotated(i);
    if (types) {
      const auto type = listed[as_size(i)].string();
      chunked = type == "chunked_attention";
      if (!chunked && type != "full_attention")
        throw failure(errc::unsupported,
                      config.label("layer_types") + " holds `" + std::string(type) +
                        "`, supported are full_attention and chunked_attention");
    }
    model.chunks.push_back(chunked ? chunk : 0);
  }
}

void read_experts(const reader& config, model_config& model) {
  read_expert_counts(config, model, {"num_local_experts"}, 16, 1);
  auto& experts = model.experts;
  experts.ffn = experts.shared_ffn = config.size("intermediate_size", max_ffn);
  experts.weigh_inputs = true;
  const int step = config.integer("interleave_moe_layer_step", 1, max_layers, 1);
  const auto listed = config.integers("moe_layers", 0, max_layers);
  for (int i = 0; i < model.layers; ++i)
    model.sparse[as_size(i)] = listed ? std::ranges::find(*listed, i) != listed->end() : (i + 1) % step == 0;
}

} // namespace

void read_llama4(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.ffn = nullptr, .default_kv_heads = 8, .default_head_dim = 128, .default_norm_eps = 1e-5});
  model.ffn = config.integer("intermediate_size_mlp", 1, max_ffn, 16384);
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  read_positions(config, model, {.default_context = 131072, .theta = 500000, .interleaved = true});
  read_rotated_layers(config, model);
  read_chunks(config, model);
  model.qk_norm = model.qk_norm_plain = model.qk_norm_rotated = config.boolean("use_qk_norm", true);
  if (config.boolean("attn_temperature_tuning", true))
    model.growth = {static_cast<float>(config.number("attn_scale", 0, 1e6).value_or(0.1)),
                    config.integer("floor_scale", 1, max_positions, 8192), 1, true};
  read_experts(config, model);
}

void arrange_llama4(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    const bool sparse = model.is_sparse(layer);
    const std::string stored = sparse ? "feed_forward.shared_expert." : "feed_forward.",
                      presented = sparse ? "mlp.shared_expert." : "mlp.";
    for (const char* name : {"gate_proj", "up_proj", "down_proj"})
      tensors.rename(layer, presented + name, stored + name);
    if (!sparse)
      continue;
    tensors.rename(layer, "mlp.gate", "feed_forward.router");
    tensors.split_experts(layer, "feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj", true);
  }
}

namespace {

/// What files do not say is as in all of Llama 4's models.
void describe_llama4(const architecture_keys& keys, model_config& model) {
  model.experts.weigh_inputs = true;
  if (const auto* up = keys.tensor("blk." + std::to_string(model.layers - 1) + ".ffn_up_shexp.weight"))
    model.experts.shared_ffn = static_cast<int>(up->info.shape[0]);
  const int chunk = keys.integer("attention.chunk_size", 0, max_positions).value_or(8192);
  for (int i = 0; i < model.layers; ++i) {
    model.unrotated.push_back((i + 1) % 4 == 0);
    model.chunks.push_back(model.unrotated.back() ? 0 : chunk);
  }
  model.windows.assign(as_size(model.layers), 0);
  model.qk_norm = model.qk_norm_plain = model.qk_norm_rotated = model.experts.count != 128;
  model.growth = {static_cast<float>(keys.number("attention.temperature_scale", 0, 1e6).value_or(0.1)),
                  keys.integer("attention.temperature_length", 1, max_positions).value_or(8192), 1, true};
}

} // namespace

const family llama4_text_family{"llama4_text",
                                read_llama4,
                                arrange_llama4,
                                {{"llama4", pairs | says_interval | experts, describe_llama4}},
                                sigmoid | paired_heads};

} // namespace troupe::families
