// DeepSeek V3.2 and GLM 5 (glm_moe_dsa): V3 with an indexer that chooses the positions which latent attention sees;
// layers of GLM may take their predecessor's choice.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>

namespace troupe::families {

using namespace config_limits;

namespace {

/// `pairs`: how checkpoints of the family rotate the indexer's heads, unless they say so.
void read_indexer(const reader& config, model_config& model, int default_heads, bool pairs) {
  if (const auto types = config.child("layer_types"))
    for (const auto& type : types->items())
      if (const auto word = type.string(); word != "indexed_attention")
        throw failure(errc::unsupported,
                      config.label("layer_types") + " has `" + std::string(word) +
                        "`, supported is indexed_attention for this model_type");
  if (model.latent.q_rank == 0)
    throw failure(errc::unsupported, config.label("q_lora_rank") + " is null, but an indexer's queries are made of it");
  auto& indexer = model.indexer;
  indexer.heads = config.integer("index_n_heads", 1, max_heads, default_heads);
  indexer.dim = config.integer("index_head_dim", 2, max_latent_dim, 128);
  indexer.top = config.integer("index_topk", 1, max_positions, 2048);
  indexer.pairs = config.boolean("indexer_rope_interleave", pairs);
  if (indexer.dim % 2 != 0 || indexer.dim < model.latent.rotated)
    throw failure(errc::unsupported,
                  config.label("index_head_dim") + " is " + std::to_string(indexer.dim) +
                    ", supported are even numbers from `qk_rope_head_dim`, " + std::to_string(model.latent.rotated) +
                    ", on");
  if (std::int64_t{indexer.heads} * indexer.dim > max_ffn)
    throw failure(errc::unsupported,
                  config.label("index_n_heads") + " is " + std::to_string(indexer.heads) +
                    ", which times `index_head_dim` is more than the supported " + std::to_string(max_ffn));
}

/// Which layers take the choice of the one before: `indexer_types`, else `index_topk_pattern`, else every layer but one
/// in `index_topk_freq`.
void read_shared_choices(const reader& config, model_config& model) {
  auto& shared = model.indexer.shared;
  const auto wrong = [&](const char* key) {
    throw failure(errc::bad_file,
                  config.label(key) + " must say for each of " + std::to_string(model.layers) +
                    " layers whether its indexer is full or shared, and the first one's is full");
  };
  if (const auto types = config.child("indexer_types")) {
    for (const auto& type : types->items()) {
      const auto word = type.string();
      if (word != "full" && word != "shared")
        wrong("indexer_types");
      shared.push_back(word == "shared");
    }
    if (shared.size() != as_size(model.layers) || shared.front())
      wrong("indexer_types");
  } else if (const auto pattern = config.string("index_topk_pattern")) {
    for (const char c : *pattern) {
      if (c != 'F' && c != 'S')
        wrong("index_topk_pattern");
      shared.push_back(c == 'S');
    }
    if (shared.size() != as_size(model.layers) || shared.front())
      wrong("index_topk_pattern");
  } else {
    const int every = config.integer("index_topk_freq", 1, max_layers, 1),
              first = config.integer("index_skip_topk_offset", 1, max_layers, 2);
    for (int i = 0; i < model.layers; ++i)
      shared.push_back(std::max(i - first + 1, 0) % every != 0);
  }
  if (std::ranges::find(shared, true) == shared.end())
    shared.clear();
}

} // namespace

void read_deepseek_v32(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2});
  require(config, "mlp_bias", false);
  read_latent_attention(config, model, {.positions = 163840});
  model.rope.interleaved = true;
  model.experts.scale = 2.5f;
  read_experts_of_groups(config, model, 256, 8, 2048, 1, 3);
  read_groups(config, model, 8, 4);
  read_corrected_router(config, model, true);
  read_indexer(config, model, 64, false);
}

void read_glm_moe_dsa(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2, .default_norm_eps = 1e-5});
  require(config, "mlp_bias", false);
  read_latent_attention(config, model, {.q_rank = 2048, .plain = 192, .value = 256, .positions = 202752});
  model.rope.interleaved = true;
  model.experts.scale = 2.5f;
  read_experts_of_groups(config, model, 256, 8, 2048, 1, 3);
  read_groups(config, model, 1, 1);
  read_corrected_router(config, model, true);
  read_indexer(config, model, 32, true);
  read_shared_choices(config, model);
}

void arrange_indexed(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_deepseek(model, stored, to);
  tensor_arranger tensors(model, to);
  auto rope = model.rope;
  rope.dims = model.latent.rotated;
  rope.interleaved = model.indexer.pairs;
  const auto order = rotated_order(rope, model.indexer.dim);
  if (order.empty())
    return;
  const auto one = std::make_shared<const std::vector<std::uint32_t>>(order);
  std::vector<std::uint32_t> rows;
  for (int head = 0; head < model.indexer.heads; ++head)
    for (const auto row : order)
      rows.push_back(static_cast<std::uint32_t>(head * model.indexer.dim) + row);
  const auto all = std::make_shared<const std::vector<std::uint32_t>>(std::move(rows));
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto reorder = [&](const std::string& name, const row_order& how) {
      stored_part part;
      part.name = tensors.stored(layer, name);
      part.rows = how;
      part.of_rows = how->size();
      tensors.add(layer, name, part);
    };
    if (!model.indexes(layer))
      continue;
    reorder("self_attn.indexer.wq_b.weight", all);
    for (const char* name : {"wk.weight", "k_norm.weight", "k_norm.bias"})
      reorder(std::string("self_attn.indexer.") + name, one);
  }
}

const family deepseek_v32_family{"deepseek_v32", read_deepseek_v32, arrange_indexed};
const family glm_moe_dsa_family{"glm_moe_dsa", read_glm_moe_dsa, arrange_indexed};

} // namespace troupe::families
