// DeepSeek V3.2 and GLM 5 (glm_moe_dsa): V3 with an indexer that chooses the positions which latent attention sees;
// layers of GLM may take their predecessor's choice. Mistral Large 4: the same without a query rank, with layers that do
// not rotate or read latents of others, learned frequencies, and queries that grow by numbers of each head.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>

namespace troupe::families {

using namespace config_limits;

void read_indexer(const reader& config, model_config& model, int default_heads, bool pairs) {
  if (const auto types = config.child("layer_types"))
    for (const auto& type : types->items())
      if (const auto word = type.string(); word != "indexed_attention" && word != "deepseek_sparse_attention")
        throw failure(errc::unsupported,
                      config.label("layer_types") + " has `" + std::string(word) +
                        "`, supported is indexed_attention for this model_type");
  if (model.latent.q_rank == 0 && !model.indexer.reads_hidden)
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

void read_mistral_large4(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2, .default_norm_eps = 1e-5});
  read_latent_attention(config, model, {.plain = 64, .positions = 1048576});
  model.rope.interleaved = true;
  auto& latent = model.latent;
  latent.q_rank = 0;
  latent.norm_eps = model.norm_eps;
  latent.plain_unrotated = model.head_growth = model.learned_frequencies = model.indexer.reads_hidden = true;
  const auto listed = [&](const char* key, int high) {
    const auto values = config.integers(key, 0, high);
    if (values && values->size() < as_size(model.layers))
      throw failure(errc::bad_file,
                    config.label(key) + " must hold a number for each of " + std::to_string(model.layers) + " layers");
    return values;
  };
  const auto rotates = listed("no_rope_layers", 1);
  const auto sources = listed("kv_source_layers", model.layers - 1);
  const int interval = config.integer("no_rope_layer_interval", 1, max_layers, 4);
  bool shares = false;
  for (int i = 0; i < model.layers; ++i) {
    model.unrotated.push_back(rotates ? (*rotates)[as_size(i)] == 0 : (i + 1) % interval == 0);
    const int from = sources ? (*sources)[as_size(i)] : i;
    if (from > i || (from < i && model.kv_layers[as_size(from)] != from) ||
        model.unrotated[as_size(from)] != model.unrotated.back())
      throw failure(errc::bad_file,
                    config.label("kv_source_layers") + " says that layer " + std::to_string(i) +
                      " reads the latents of layer " + std::to_string(from) +
                      ", expected its own or those of an earlier one that has its own and rotates alike");
    model.kv_layers.push_back(from);
    shares = shares || from < i;
  }
  if (!shares)
    model.kv_layers.clear();
  read_experts_of_groups(config, model, 128, 4, 6144, 1, 1);
  read_groups(config, model, 1, 1);
  model.experts.group_by_two = model.experts.renormalise = true;
  read_indexer(config, model, 32, true);
  read_shared_choices(config, model);
  model.logit_cap = static_cast<float>(config.number("final_logit_softcapping", 0, 1e9).value_or(30));
}

/// Its files have names of their own.
void arrange_mistral_large4(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to, "layers.");
  for (const auto& [stored, name] :
       {std::pair("tok_embeddings.weight", "model.embed_tokens.weight"), std::pair("norm.weight", "model.norm.weight"),
        std::pair("output.weight", "lm_head.weight"), std::pair("lerope.alpha", "model.rotary_emb.alpha")})
    to.names[stored] = name;
  const auto& latent = model.latent;
  const auto heads = as_size(model.heads), value = as_size(latent.value);
  const auto queries = rotated_last(heads, as_size(latent.plain), as_size(latent.rotated), true),
             down = rotated_last(1, as_size(latent.kv_rank), as_size(latent.rotated), true);
  auto rope = model.rope;
  rope.dims = latent.rotated;
  const auto order = rotated_order(rope, model.indexer.dim);
  const auto index_queries = in_each_head(order, model.indexer.heads), index_key = in_each_head(order, 1);
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto part = [&](const std::string& name, const std::string& from, const row_order& rows = nullptr) {
      tensors.take(layer, name, from, rows);
    };
    const bool rotates = !model.is_unrotated(layer);
    part("input_layernorm.weight", "attention_norm.weight");
    part("post_attention_layernorm.weight", "ffn_norm.weight");
    part("self_attn.q_proj.weight", "attention.wq.weight", rotates ? queries : nullptr);
    part("self_attn.kv_a_proj_with_mqa.weight", "attention.wkv_a_with_mqa.weight", rotates ? down : nullptr);
    part("self_attn.kv_a_layernorm.weight", "attention.kv_a_norm.weight");
    part("self_attn.o_proj.weight", "attention.wo.weight");
    for (const auto& [name, from] : {std::pair("scale", "s"), std::pair("bias", "b")})
      for (const std::string place : {"", "indexer."})
        part("self_attn." + place + "softmax_scaling." + name, "attention." + place + "ssmax_scaling." + from);
    const auto plain = as_size(model.latent_plain_of(layer));
    for (std::size_t h = 0; h < heads; ++h) {
      stored_part key;
      key.name = tensors.stored(layer, "attention.wkv_b.weight");
      key.of_rows = heads * (plain + value);
      auto made = key;
      key.turned_first = h * (plain + value);
      key.turned_rows = plain;
      made.rows = tensors.rows(h * (plain + value) + plain, value);
      tensors.add(layer, "self_attn.latent_key." + std::to_string(h) + ".weight", std::move(key));
      tensors.add(layer, "self_attn.latent_value." + std::to_string(h) + ".weight", std::move(made));
    }
    const auto indexed = [&](const std::string& name, const row_order& rows = nullptr) {
      part("self_attn.indexer." + name, "attention.indexer." + name, rows);
    };
    indexed("wq_b.weight", index_queries);
    for (const char* name : {"wk.weight", "k_norm.weight", "k_norm.bias"})
      indexed(name, index_key);
    for (const char* name : {"weights_proj.weight", "q_input_norm.weight", "q_input_norm.bias"})
      indexed(name);
    part("mlp.gate.weight", "gate.weight");
    for (const auto& [name, from] :
         {std::pair("gate_proj", "w1"), std::pair("up_proj", "w3"), std::pair("down_proj", "w2")}) {
      const auto matrix = [&](const std::string& to_stem, const std::string& from_stem) {
        part(to_stem + name + ".weight", from_stem + from + ".weight");
      };
      if (!model.is_sparse(layer)) {
        matrix("mlp.", "feed_forward.");
        continue;
      }
      matrix("mlp.shared_expert.", "shared_experts.");
      for (int e = 0; e < model.experts.count; ++e) {
        const auto one = "experts." + std::to_string(e) + ".";
        matrix("mlp." + one, one);
      }
    }
  }
}

void arrange_indexed(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_deepseek(model, stored, to);
  tensor_arranger tensors(model, to);
  auto rope = model.rope;
  rope.dims = model.latent.rotated;
  rope.interleaved = model.indexer.pairs;
  auto order = rotated_order(rope, model.indexer.dim);
  if (model.indexer.last) // counted from the first rotated dimension on, around the end
    for (auto& row : order)
      row = (row + static_cast<std::uint32_t>(model.indexer.dim - rope.dims)) %
        static_cast<std::uint32_t>(model.indexer.dim);
  if (order.empty())
    return;
  const auto one = in_each_head(order, 1), all = in_each_head(order, model.indexer.heads);
  for (int layer = 0; layer < model.layers; ++layer) {
    if (!model.indexes(layer))
      continue;
    for (const std::string name : {"wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias"})
      tensors.take(layer, "self_attn.indexer." + name, "self_attn.indexer." + name, name == "wq_b.weight" ? all : one);
  }
}

const family deepseek_v32_family{"deepseek_v32", read_deepseek_v32, arrange_indexed};
const family mistral_large4_text_family{"mistral_large4_text", read_mistral_large4, arrange_mistral_large4};
const family glm_moe_dsa_family{"glm_moe_dsa", read_glm_moe_dsa, arrange_indexed};

} // namespace troupe::families
