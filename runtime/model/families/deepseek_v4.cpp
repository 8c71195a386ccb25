// DeepSeek V4: hyper-connections, attention over compressed keys that an indexer chooses among in some layers, and experts
// that a table of tokens chooses in the first layers.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe::families {

using namespace config_limits;

namespace {

/// A layer's attention: to tokens of a window alone, or also to entries: chosen ones, or all.
enum class seen_entries : std::uint8_t { none, chosen, all };

constexpr std::array entry_words{std::pair("sliding_attention", seen_entries::none),
                                 std::pair("compressed_sparse_attention", seen_entries::chosen),
                                 std::pair("heavily_compressed_attention", seen_entries::all)};

[[noreturn]] void refuse_count(const reader& config, const char* key, int layers) {
  throw failure(errc::bad_file,
                config.label(key) + " must have a value for each of " + std::to_string(layers) + " layers");
}

std::vector<seen_entries> read_kinds(const reader& config, int layers) {
  std::vector<seen_entries> kinds;
  if (const auto types = config.child("layer_types")) {
    for (const auto& type : types->items()) {
      const auto word = type.string();
      const auto known = std::ranges::find(entry_words, word, [](const auto& pair) { return pair.first; });
      if (known == entry_words.end())
        throw failure(errc::unsupported,
                      type.label() + " is `" + std::string(word) +
                        "`, supported are sliding_attention, compressed_sparse_attention and "
                        "heavily_compressed_attention for this model_type");
      kinds.push_back(known->second);
    }
    if (kinds.size() < as_size(layers))
      refuse_count(config, "layer_types", layers);
  } else if (const auto ratios = config.integers("compress_ratios", 0, max_positions)) {
    for (const int ratio : *ratios) {
      if (ratio != 0 && ratio != 4 && ratio != 128)
        throw failure(errc::unsupported,
                      config.label("compress_ratios") + " has " + std::to_string(ratio) +
                        ", supported are 0, 4 and 128");
      kinds.push_back(ratio == 0 ? seen_entries::none : ratio == 4 ? seen_entries::chosen : seen_entries::all);
    }
    if (kinds.size() < as_size(layers))
      refuse_count(config, "compress_ratios", layers);
  } else {
    for (int i = 0; i < layers; ++i)
      kinds.push_back(i < 2 || i % 2 == 0 ? seen_entries::all : seen_entries::chosen);
  }
  kinds.resize(as_size(layers));
  return kinds;
}

void read_compressed(const reader& config, model_config& model) {
  auto& of = model.compressed;
  of.q_rank = config.integer("q_lora_rank", 1, max_hidden, 1024);
  of.window = config.integer("sliding_window", 1, max_positions, 128);
  of.groups = config.integer("o_groups", 1, max_heads, 8);
  of.group_rank = config.integer("o_lora_rank", 1, max_hidden, 1024);
  if (model.heads % of.groups != 0 || std::int64_t{of.groups} * of.group_rank > max_ffn ||
      std::int64_t{of.groups} * model.layers > max_layer_experts)
    throw failure(errc::unsupported,
                  config.label("o_groups") + " is " + std::to_string(of.groups) + ", supported are divisors of the " +
                    std::to_string(model.heads) + " heads, with at most " + std::to_string(max_ffn) +
                    " numbers of `o_lora_rank` in all");
  int often = 4, seldom = 128;
  if (const auto rates = config.object("compress_rates")) {
    often = rates->integer("compressed_sparse_attention", 1, max_positions, often);
    seldom = rates->integer("heavily_compressed_attention", 1, max_positions, seldom);
  }
  often = config.integer("compress_rate_csa", 1, max_positions, often);
  seldom = config.integer("compress_rate_hca", 1, max_positions, seldom);
  for (const auto kind : read_kinds(config, model.layers)) {
    of.rates.push_back(kind == seen_entries::none ? 0 : kind == seen_entries::chosen ? often : seldom);
    of.indexed.push_back(kind == seen_entries::chosen);
  }
  // Threads hold what a whole group gives while they make its entry.
  if (std::max(often, seldom) > 4096)
    throw failure(errc::unsupported,
                  config.label("compress_rates") + " has groups of " + std::to_string(std::max(often, seldom)) +
                    " tokens, supported are 4096");
}

void read_entry_rotations(const reader& config, model_config& model) {
  const int positions = config.integer("max_position_embeddings", 1, max_positions, 1 << 20);
  position_rules rules{.partial = true, .default_partial = 0.125};
  if (const auto rotated = config.integer("qk_rope_head_dim", 2, max_latent_dim))
    rules.default_partial = double(*rotated) / model.head_dim;
  auto given = config.object("rope_parameters");
  if (!given)
    given = config.object("rope_scaling");
  const auto main = given ? given->object("main") : std::nullopt,
             compress = given ? given->object("compress") : std::nullopt;
  rope_config local;
  if (main && compress) {
    local = read_rope(config, main, model.head_dim, positions, rules);
    model.rope = read_rope(config, compress, model.head_dim, positions, rules);
  } else {
    local = read_rope(config, std::nullopt, model.head_dim, positions, rules);
    model.rope = read_rope(config, given, model.head_dim, positions, rules);
    model.rope.theta = config.number("compress_rope_theta", 1.000001, 1e30).value_or(160000);
    if (model.rope.type == rope_type::yarn && !given->has("attention_factor"))
      model.rope.attention_factor = 1;
  }
  for (const auto* rope : {&local, &model.rope})
    if (rope->type == rope_type::dynamic || rope->type == rope_type::longrope)
      throw failure(
        errc::unsupported,
        config.label("rope_parameters") +
          " asks for dynamic or longrope rotations, supported are default, linear, llama3 and yarn for this "
          "model_type");
  set_context(model, positions);
  if (local != model.rope)
    model.local_rope = local;
}

void read_entry_indexer(const reader& config, model_config& model) {
  const auto& indexed = model.compressed.indexed;
  if (std::ranges::find(indexed, true) == indexed.end())
    return;
  auto& indexer = model.indexer;
  indexer.heads = config.integer("index_n_heads", 1, max_heads, 64);
  indexer.dim = config.integer("index_head_dim", 2, max_latent_dim, 128);
  indexer.top = config.integer("index_topk", 1, max_positions, 512);
  const int rotated = model.rope.dims > 0 ? model.rope.dims : model.head_dim;
  if (indexer.dim % 2 != 0 || indexer.dim < rotated || std::int64_t{indexer.heads} * indexer.dim > max_ffn)
    throw failure(errc::unsupported,
                  config.label("index_head_dim") + " is " + std::to_string(indexer.dim) +
                    ", supported are even numbers from the " + std::to_string(rotated) +
                    " on that rotate, which times `index_n_heads` are at most " + std::to_string(max_ffn));
}

void read_hashed_experts(const reader& config, model_config& model) {
  auto& experts = model.experts;
  read_expert_counts(config, model, {"n_routed_experts", "num_local_experts"}, 256, 6);
  experts.ffn = model.ffn = config.integer("moe_intermediate_size", 1, max_ffn, 2048);
  require_number(config, "n_shared_experts", 1);
  experts.shared_ffn = experts.ffn;
  require_word(config, "scoring_func", {"sqrtsoftplus", "sigmoid"});
  experts.scores = config.string("scoring_func").value_or("") == "sigmoid" ? router_scores::sigmoid
                                                                           : router_scores::root_softplus;
  require(config, "norm_topk_prob", true);
  experts.renormalise = experts.correction = true;
  experts.scale = static_cast<float>(config.number("routed_scaling_factor", 0, 1e6).value_or(1.5));
  if (const auto types = config.child("mlp_layer_types")) {
    for (const auto& type : types->items()) {
      const auto word = type.string();
      if (word != "hash_moe" && word != "moe")
        throw failure(errc::unsupported,
                      type.label() + " is `" + std::string(word) + "`, supported are hash_moe and moe");
      model.hashed.push_back(word == "hash_moe");
    }
    if (model.hashed.size() < as_size(model.layers))
      refuse_count(config, "mlp_layer_types", model.layers);
    model.hashed.resize(as_size(model.layers));
  } else {
    const int first = config.integer("num_hash_layers", 0, max_layers, 3);
    for (int i = 0; i < model.layers; ++i)
      model.hashed.push_back(i < first);
  }
  if (std::ranges::find(model.hashed, true) == model.hashed.end())
    model.hashed.clear();
  // Gates are cut ahead of the activation, which is the same as behind it, at what it makes of the limit.
  if (const auto limit = static_cast<float>(config.number("swiglu_limit", 0, 1e9).value_or(10)); limit > 0) {
    model.act.alpha = 1 / (1 + std::exp(-limit));
    model.mlp_limits.assign(as_size(model.layers), limit);
    model.expert_limits = model.mlp_limits;
  }
}

} // namespace

void read_deepseek_v4(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model,
             {.ffn = nullptr, .default_kv_heads = 1, .default_head_dim = 512, .most_head_dim = max_latent_dim});
  if (model.kv_heads != 1)
    throw failure(errc::unsupported,
                  config.label("num_key_value_heads") + " is " + std::to_string(model.kv_heads) +
                    ", supported is 1 for this model_type");
  require(config, "attention_bias", false);
  require(config, "mlp_bias", false);
  require_word(config, "expert_dtype", {"fp4", "fp8", "bf16"});
  model.attention_sinks = true;
  read_compressed(config, model);
  read_entry_rotations(config, model);
  read_entry_indexer(config, model);
  read_hashed_experts(config, model);
  auto& hyper = model.hyper;
  hyper.streams = config.integer("hc_mult", 1, 64, 4);
  hyper.passes = config.integer("hc_sinkhorn_iters", 1, 1000, 20);
  hyper.eps = static_cast<float>(config.number("hc_eps", 0, 1).value_or(1e-6));
}

namespace {

/// Heads that are stored as elements that do not rotate, then neighbouring pairs that do: element i is to be paired with
/// i + dim / 2, and pairs that rotate come first.
row_order pairs_first(std::size_t heads, std::size_t dim, std::size_t rotated) {
  const auto plain = dim - rotated, half = dim / 2, pairs = rotated / 2;
  std::vector<std::uint32_t> rows;
  for (std::size_t first = 0; first < heads * dim; first += dim)
    for (std::size_t i = 0; i < dim; ++i) {
      const auto within = i % half, upper = i / half;
      const auto from = within < pairs ? plain + 2 * within + upper : upper * (half - pairs) + within - pairs;
      rows.push_back(static_cast<std::uint32_t>(first + from));
    }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(rows));
}

} // namespace

/// Files have names of their own, of which published ones lack "model.".
void arrange_deepseek_v4(const model_config& model, const checkpoint& stored, arrangement& to) {
  const bool bare = stored.find("embed.weight") != nullptr;
  const std::string around = bare ? "" : "model.";
  tensor_arranger tensors(model, to, around + "layers.");
  to.names["head.weight"] = "lm_head.weight";
  if (bare) {
    to.names["embed.weight"] = "model.embed_tokens.weight";
    to.names["norm.weight"] = "model.norm.weight";
  }
  const std::string head = bare ? "hc_head_" : "model.hc_head.hc_", mixer = "model.hyper_connection_mixer.";
  for (const auto& [name, from] :
       {std::pair("fn.weight", "fn"), std::pair("base", "base"), std::pair("scale", "scale")})
    to.tensors[mixer + name] = {.name = head + from};
  const auto heads = as_size(model.heads), dim = as_size(model.head_dim), groups = as_size(model.compressed.groups),
             rank = as_size(model.compressed.group_rank), index_dim = as_size(model.indexer.dim);
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto& rope = model.rope_of(layer);
    const auto rotated = rope.dims > 0 ? as_size(rope.dims) : dim,
               index_rotated = model.rope.dims > 0 ? as_size(model.rope.dims) : dim;
    const auto part = [&](const std::string& name, const std::string& from, const row_order& rows = nullptr) {
      tensors.take(layer, name, from, rows);
    };
    part("input_layernorm.weight", "attn_norm.weight");
    part("post_attention_layernorm.weight", "ffn_norm.weight");
    for (const auto& [name, from] : {std::pair("attn", "attn"), std::pair("mlp", "ffn")})
      for (const auto& [what, stem] :
           {std::pair("fn.weight", "fn"), std::pair("base", "base"), std::pair("scale", "scale")})
        part(std::string(name) + "_hyper_connection." + what, std::string("hc_") + from + "_" + stem);
    part("self_attn.q_a_proj.weight", "attn.wq_a.weight");
    part("self_attn.q_a_layernorm.weight", "attn.q_norm.weight");
    part("self_attn.q_b_proj.weight", "attn.wq_b.weight", pairs_first(heads, dim, rotated));
    part("self_attn.kv_proj.weight", "attn.wkv.weight", pairs_first(1, dim, rotated));
    part("self_attn.kv_norm.weight",
         stored.find(tensors.stored(layer, "attn.kv_norm.weight")) ? "attn.kv_norm.weight" : "attn.norm.weight",
         pairs_first(1, dim, rotated));
    part("self_attn.sinks", "attn.attn_sink");
    for (std::size_t g = 0; g < groups; ++g)
      tensors.take(layer, "self_attn.o_a_proj." + std::to_string(g) + ".weight", "attn.wo_a.weight",
                   tensors.rows(g * rank, rank), groups * rank);
    part("self_attn.o_proj.weight", "attn.wo_b.weight");
    const auto entries = [&](const std::string& name, const std::string& from, std::size_t width, std::size_t turned) {
      const auto given = model.indexes(layer) ? std::size_t{2} : 1,
                 rate = as_size(model.compressed.rates[as_size(layer)]);
      part(name + "kv_proj.weight", from + "wkv.weight", pairs_first(given, width, turned));
      part(name + "gate_proj.weight", from + "wgate.weight", pairs_first(given, width, turned));
      const auto rows = pairs_first(rate * given, width, turned);
      tensors.add(
        layer, name + "position_bias",
        {.name = tensors.stored(layer, from + "ape"), .as_vector = true, .rows = rows, .of_rows = rows->size()});
      part(name + "norm.weight", from + "norm.weight", pairs_first(1, width, turned));
    };
    if (model.compressed.rates[as_size(layer)] > 0)
      entries("self_attn.compressor.", "attn.compressor.", dim, rotated);
    if (model.indexes(layer)) {
      entries("self_attn.indexer.compressor.", "attn.indexer.compressor.", index_dim, index_rotated);
      part("self_attn.indexer.wq_b.weight", "attn.indexer.wq_b.weight",
           pairs_first(as_size(model.indexer.heads), index_dim, index_rotated));
      part("self_attn.indexer.weights_proj.weight", "attn.indexer.weights_proj.weight");
    }
    part("mlp.gate.weight", "ffn.gate.weight");
    if (model.is_hashed(layer))
      tensors.add(layer, "mlp.gate.tid2eid", {.name = tensors.stored(layer, "ffn.gate.tid2eid"), .integers = true});
    else
      part("mlp.gate.e_score_correction_bias", "ffn.gate.bias");
    for (const auto& [name, from] :
         {std::pair("gate_proj", "w1"), std::pair("up_proj", "w3"), std::pair("down_proj", "w2")}) {
      const auto one = [&](const std::string& to_stem, const std::string& stem) {
        part(to_stem + name + ".weight", stem + from + ".weight");
      };
      one("mlp.shared_expert.", "ffn.shared_experts.");
      for (int e = 0; e < model.experts.count; ++e)
        one("mlp.experts." + std::to_string(e) + ".", "ffn.experts." + std::to_string(e) + ".");
    }
  }
}

const family deepseek_v4_family{"deepseek_v4", read_deepseek_v4, arrange_deepseek_v4};

} // namespace troupe::families
