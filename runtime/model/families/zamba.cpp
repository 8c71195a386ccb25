// Zamba 2: Mamba 2 in every layer; before some of them, one of a few blocks of attention and an MLP that such layers use
// in turn. Each adds products of low rank of its own to those of the block.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/recurrent_reading.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::families {

using namespace config_limits;

namespace {

constexpr int max_pair_rank = 1 << 12;

/// Which layers use a block: as they are listed, else as in the model of 2.7B.
std::vector<std::string> block_words(const reader& config) {
  for (const char* key : {"layers_block_type", "layer_types"})
    if (auto words = read_layer_words(config, key))
      return *words;
  std::vector<std::string> words(54, "linear_attention");
  for (const std::size_t i : {6, 12, 18, 24, 30, 36, 42, 47, 51})
    words[i] = "hybrid";
  return words;
}

void read_blocks(const reader& config, model_config& model) {
  const auto words = block_words(config);
  if (words.size() != as_size(model.layers))
    throw failure(errc::bad_file,
                  config.label("layers_block_type") + " must hold " + std::to_string(model.layers) +
                    " strings, found " + std::to_string(words.size()));
  for (const auto& word : words) {
    if (word != "hybrid" && word != "linear_attention")
      throw failure(errc::unsupported,
                    config.label("layers_block_type") + " holds `" + word +
                      "`, supported are hybrid and linear_attention");
    const bool uses = word == "hybrid";
    model.parts.push_back({.attention = uses, .recurrence = true, .mlp = uses});
  }
  if (std::ranges::find(words, "hybrid") == words.end())
    return;
  auto& blocks = model.shared_blocks;
  blocks.count = config.integer("num_mem_blocks", 1, max_layers, 1);
  const int rank = config.integer("adapter_rank", 1, max_pair_rank, 128);
  require(config, "use_shared_mlp_adapter", true);
  blocks.mlp_rank = rank;
  blocks.attention_rank = config.boolean("use_shared_attention_adapter", false) ? rank : 0;
}

void read_zamba2(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "gelu");
  read_sizes(config, model, {.ffn = nullptr, .default_head_dim = 2, .default_norm_eps = 1e-5, .tied = true});
  model.ffn = config.integer("intermediate_size", 1, max_ffn, std::min(4 * model.hidden, max_ffn));
  model.head_dim = 2 * model.hidden / model.heads;
  if (2 * model.hidden % model.heads != 0 || model.head_dim % 2 != 0 || model.head_dim > max_head_dim)
    throw failure(errc::unsupported,
                  config.label("num_attention_heads") + " are " + std::to_string(model.heads) + " heads of " +
                    std::to_string(2 * model.hidden) + " dimensions together: supported are even numbers up to " +
                    std::to_string(max_head_dim) + " for each");
  model.attention_scale = 1 / std::sqrt(static_cast<float>(model.head_dim) / 2);
  read_positions(config, model, {.default_context = 4096});
  if (config.boolean("use_long_context", false))
    model.max_context = 16384;
  if (!config.boolean("use_mem_rope", false))
    model.unrotated.assign(as_size(model.layers), true);
  read_mamba(config, model,
             {.heads = "n_mamba_heads",
              .head_dim = "mamba_headdim",
              .groups = "mamba_ngroups",
              .conv_bias = "use_conv_bias",
              .bias = "add_bias_linear",
              .default_heads = 8,
              .default_state = 64});
  auto& r = model.recurrent;
  r.conv_bias = true; // whatever `use_conv_bias` is
  r.norm_eps = 1e-5f;
  r.least_dt = static_cast<float>(config.number("time_step_min", 0, 1e6).value_or(0.001)); // and no upper limit
  r.most_dt = 0;
  read_blocks(config, model);
}

void arrange_zamba2(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  to.names["model.final_layernorm.weight"] = "model.norm.weight";
  int uses = 0;
  for (int layer = 0; layer < model.layers; ++layer) {
    if (!model.parts_of(layer).attention) {
      arrange_mamba(model, tensors, layer, "mamba.");
      continue;
    }
    arrange_mamba(model, tensors, layer, "mamba_decoder.mamba.");
    tensors.rename(layer, {{"input_layernorm", "mamba_decoder.input_layernorm"}, {"shared_block.linear", "linear"}});
    const int holder = model.block_layer(layer);
    const std::string block = "shared_transformer.";
    if (holder == layer) {
      tensors.rename(layer,
                     {{"joined_layernorm", "shared_transformer.input_layernorm"},
                      {"post_attention_layernorm", "shared_transformer.pre_ff_layernorm"},
                      {"mlp.down_proj", "shared_transformer.feed_forward.down_proj"}});
      for (const std::string name : {"q_proj", "k_proj", "v_proj", "o_proj"})
        tensors.rename(layer, "self_attn." + name, block + "self_attn." + name);
      tensors.split_gate_up(layer, block + "feed_forward.gate_up_proj");
    }
    // A block has the pairs of all layers that use it.
    const auto pair = [&](const std::string& name, const std::string& list) {
      const auto from = tensors.stored(holder, block + list + "." + std::to_string(uses));
      tensors.add(layer, "shared_block.pair." + name + ".down.weight", {.name = from + ".0.weight"});
      tensors.add(layer, "shared_block.pair." + name + ".up.weight", {.name = from + ".1.weight"});
    };
    pair("gate_up", "feed_forward.gate_up_proj_adapter_list");
    for (const std::string name : {"q", "k", "v"})
      if (model.shared_blocks.attention_rank > 0)
        pair(name, "self_attn.linear_" + name + "_adapter_list");
    ++uses;
  }
}

} // namespace

const family zamba2_family{"zamba2", read_zamba2, arrange_zamba2};

} // namespace troupe::families
