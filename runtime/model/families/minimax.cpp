// MiniMax M3 (its text): grouped heads that attend to blocks of positions, which an indexer chooses for each KV head in
// some layers, and experts beside a shared one, all behind clamped SwiGLU.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <optional>

namespace troupe::families {

using namespace config_limits;

namespace {

/// Which layers are of a kind: words, else the older list of numbers, else `fallback`.
std::vector<bool> read_kinds(const reader& config, const char* key, const char* no, const char* yes,
                             const std::optional<reader>& older, const char* older_key, bool fallback, int layers) {
  std::vector<bool> kinds;
  if (const auto words = config.child(key)) {
    for (const auto& item : words->items()) {
      const auto word = item.string();
      if (word != no && word != yes)
        throw failure(errc::unsupported,
                      config.label(key) + " holds `" + std::string(word) + "`, supported are " + no + " and " + yes);
      kinds.push_back(word == yes);
    }
  } else if (const auto flags = older ? older->integers(older_key, 0, 1) : std::nullopt) {
    kinds.assign(flags->begin(), flags->end());
  } else {
    kinds.assign(as_size(layers), fallback);
  }
  if (kinds.size() != as_size(layers))
    throw failure(errc::bad_file,
                  config.label(key) + " must hold " + std::to_string(layers) + " words, found " +
                    std::to_string(kinds.size()));
  return kinds;
}

void read_blocks(const reader& config, model_config& model) {
  const auto older = config.object("sparse_attention_config");
  auto at = read_kinds(config, "layer_types", "full_attention", "minimax_m3_sparse", older, "sparse_attention_freq",
                       false, model.layers);
  if (std::ranges::find(at, true) == at.end())
    return;
  const auto number = [&](const char* key, const char* older_key, int least, int most, int fallback) {
    const auto found = older ? older->integer(older_key, least, most) : std::nullopt;
    return found ? static_cast<int>(*found) : config.integer(key, least, most, fallback);
  };
  const auto refuse = [&](const char* key, int value, const std::string& supported) {
    throw failure(errc::unsupported, config.label(key) + " is " + std::to_string(value) + ", supported " + supported);
  };
  if (older) {
    require_number(*older, "sparse_init_block", 0);
    require_word(*older, "sparse_score_type", {"max"});
  }
  auto& indexer = model.indexer;
  indexer.heads = number("index_n_heads", "sparse_num_index_heads", 1, max_heads, 4);
  indexer.dim = number("index_head_dim", "sparse_index_dim", 2, max_head_dim, 128);
  indexer.block = number("index_block_size", "sparse_block_size", 1, max_positions, 128);
  indexer.newest = number("index_local_blocks", "sparse_local_block", 0, max_positions, 1);
  const int best = number("index_topk_blocks", "sparse_topk_blocks", 1, max_positions, 16);
  if (indexer.heads != model.kv_heads)
    refuse("index_n_heads", indexer.heads, "are as many as `num_key_value_heads`, " + std::to_string(model.kv_heads));
  const int rotated = model.rope.dims > 0 ? model.rope.dims : model.head_dim;
  if (indexer.dim % 2 != 0 || indexer.dim < rotated || (model.rope.dims == 0 && indexer.dim != rotated))
    refuse("index_head_dim", indexer.dim,
           "are even numbers from the rotated dimensions of heads on, if these are a part");
  if (indexer.newest < 1 || indexer.newest > best)
    refuse("index_local_blocks", indexer.newest, "are 1 to `index_topk_blocks`, " + std::to_string(best));
  if (std::int64_t{best} * indexer.block > max_positions)
    refuse("index_topk_blocks", best, "are fewer blocks of this size");
  indexer.top = best * indexer.block;
  indexer.at = std::move(at);
}

void read_minimax_m3(const reader& config, model_config& model) {
  read_sizes(config, model, {.ffn = nullptr, .default_kv_heads = 4, .default_head_dim = 128});
  require(config, "use_gemma_norm", true);
  require_word(config, "scoring_func", {"sigmoid"});
  require_word(config, "qk_norm_type", {"per_head"});
  model.act = {kernels::activation_type::clamped_swiglu,
               static_cast<float>(config.number("swiglu_alpha", 1e-3, 1e3).value_or(1.702)),
               static_cast<float>(config.number("swiglu_limit", 1e-3, 1e6).value_or(7))};
  read_positions(config, model, {.default_context = 524288, .theta = 5000000, .partial = true});
  model.ffn = config.integer("dense_intermediate_size", 1, max_ffn, 12288);
  read_expert_counts(config, model, {"num_local_experts"}, 128, 4);
  auto& experts = model.experts;
  experts.ffn = config.integer("intermediate_size", 1, max_ffn, 3072);
  experts.shared_ffn = config.integer("shared_intermediate_size", 1, max_ffn, 3072);
  experts.scale = static_cast<float>(config.number("routed_scaling_factor", 0, 1e6).value_or(2));
  experts.correction = true;
  model.sparse = read_kinds(config, "mlp_layer_types", "dense", "sparse", config, "moe_layer_freq", true, model.layers);
  read_blocks(config, model);
}

/// Experts, the shared one and dense layers are stored as transformers fuses them, or as their authors do.
void arrange_minimax_m3(const model_config& model, const checkpoint& stored, arrangement& to) {
  tensor_arranger tensors(model, to);
  const auto& indexer = model.indexer;
  const auto queries = index_rows(model, 0, indexer.heads), one = index_rows(model, 0, 1);
  const auto part = [&](int layer, const std::string& name, std::initializer_list<std::string> places,
                        const row_order& rows = nullptr, float offset = 0) {
    for (const auto& place : places)
      if (const auto from = tensors.stored(layer, place); stored.find(from)) {
        stored_part how;
        how.name = from;
        how.rows = rows;
        how.of_rows = rows ? rows->size() : 0;
        how.offset = offset;
        return tensors.add(layer, name, std::move(how));
      }
  };
  const auto mlp = [&](int layer, const std::string& stem, std::initializer_list<std::string> places, int ffn) {
    for (const auto& place : places) {
      if (stored.find(tensors.stored(layer, place + "gate_up_proj.weight"))) {
        for (const auto& [name, first] : {std::pair("gate_proj.weight", 0), std::pair("up_proj.weight", ffn)})
          tensors.take(layer, stem + name, place + "gate_up_proj.weight", tensors.rows(as_size(first), as_size(ffn)),
                       2 * as_size(ffn));
        part(layer, stem + "down_proj.weight", {place + "down_proj.weight"});
        return;
      }
      for (const std::string name : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"})
        part(layer, stem + name, {place + name});
    }
  };
  for (int layer = 0; layer < model.layers; ++layer) {
    if (model.indexes(layer)) {
      part(layer, "self_attn.indexer.wq_b.weight", {"self_attn.indexer.q_proj.weight", "self_attn.index_q_proj.weight"},
           queries);
      part(layer, "self_attn.indexer.wk.weight", {"self_attn.indexer.k_proj.weight", "self_attn.index_k_proj.weight"},
           one);
      part(layer, "self_attn.indexer.q_norm.weight",
           {"self_attn.indexer.q_norm.weight", "self_attn.index_q_norm.weight"}, one, 1);
      part(layer, "self_attn.indexer.k_norm.weight",
           {"self_attn.indexer.k_norm.weight", "self_attn.index_k_norm.weight"}, one, 1);
    }
    if (!model.is_sparse(layer)) {
      mlp(layer, "mlp.", {"mlp."}, model.ffn);
      continue;
    }
    mlp(layer, "mlp.shared_expert.", {"mlp.shared_experts.", "block_sparse_moe.shared_experts."},
        model.experts.shared_ffn);
    part(layer, "mlp.gate.weight", {"mlp.gate.weight", "block_sparse_moe.gate.weight"});
    part(
      layer, "mlp.gate.e_score_correction_bias",
      {"mlp.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias", "mlp.e_score_correction_bias"});
    if (stored.find(tensors.stored(layer, "mlp.experts.gate_up_proj")))
      tensors.split_experts(layer, "mlp.experts.gate_up_proj", "mlp.experts.down_proj", false);
    else
      for (int e = 0; e < model.experts.count; ++e)
        for (const auto& [name, from] :
             {std::pair("gate_proj", "w1"), std::pair("down_proj", "w2"), std::pair("up_proj", "w3")}) {
          const auto stem = "experts." + std::to_string(e) + ".";
          part(layer, "mlp." + stem + name + ".weight",
               {"block_sparse_moe." + stem + from + ".weight", "mlp." + stem + from + ".weight"});
        }
  }
  tensors.shift_norms(1);
}

} // namespace

const family minimax_m3_vl_text_family{
  "minimax_m3_vl_text", read_minimax_m3, arrange_minimax_m3, {}, normed_heads | sigmoid | renormalises};

} // namespace troupe::families
