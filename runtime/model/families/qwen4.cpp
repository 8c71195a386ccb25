// Qwen 4's preview (its text): Qwen 3.5's layers on residual streams, where attention sees groups of positions that an
// indexer chooses, and some layers with a gated DeltaNet have tables of n-grams.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/recurrent_reading.hpp"
#include "runtime/model/gram_layers.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <limits>

namespace troupe::families {

using namespace config_limits;

namespace {

constexpr int most_gram = 8, most_gram_heads = 256, most_table_parts = 1 << 16;
constexpr std::size_t most_hashes = 1 << 12; // of all layers

// How transformers makes multipliers and numbers of rows of the configuration.

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;

std::uint64_t splitmix(std::uint64_t x) {
  x += golden;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111eb;
  return x ^ (x >> 31U);
}

std::vector<std::int64_t> multipliers_of(int vocab, int size, std::uint64_t seed) {
  const std::uint64_t bound = std::max<std::uint64_t>(1, std::numeric_limits<std::int64_t>::max() / vocab / 2);
  std::vector<std::int64_t> result;
  for (std::uint64_t i = 0; i < as_size(size); ++i)
    result.push_back(static_cast<std::int64_t>(2 * (splitmix(seed + golden * (i + 1)) % bound) + 1));
  return result;
}

bool is_prime(std::int64_t x) {
  if (x < 4 || x % 2 == 0)
    return x == 2 || x == 3;
  for (std::int64_t by = 3; by * by <= x; by += 2)
    if (x % by == 0)
      return false;
  return true;
}

[[noreturn]] void unsupported_value(const reader& config, const char* key, std::int64_t value, const char* supported) {
  throw failure(errc::unsupported,
                config.label(key) + " is " + std::to_string(value) + ", supported " + std::string(supported));
}

void read_streams(const reader& config, model_config& model) {
  auto& hyper = model.hyper;
  hyper.streams = config.integer("hc_count", 2, 64, 4);
  hyper.rank = config.integer("hc_lowrank", 1, max_hidden, 320);
  if (std::int64_t{hyper.streams} * model.hidden > max_ffn)
    unsupported_value(config, "hc_count", hyper.streams, "are fewer streams of this width");
  model.norms = norm_place::none;
  model.final_norm = false;
}

void read_groups_of_positions(const reader& config, model_config& model) {
  const auto size = [&](const char* key, int least, int most) {
    const auto value = config.integer(key, least, most);
    if (!value)
      throw failure(errc::bad_file, config.label(key) + " is missing");
    return static_cast<int>(*value);
  };
  auto& indexer = model.indexer;
  indexer.heads = size("indexer_n_heads", 1, max_heads);
  indexer.dim = size("indexer_head_dim", 2, max_head_dim);
  indexer.group = size("indexer_compress_ratio", 1, max_positions);
  const int budget = size("indexer_budget", 1, max_positions);
  if (const int keys = size("indexer_kv_heads", 1, max_heads); keys != 1)
    unsupported_value(config, "indexer_kv_heads", keys, "is 1");
  if (indexer.group < 2 || kernels::block_tokens % indexer.group != 0)
    unsupported_value(config, "indexer_compress_ratio", indexer.group, "are 2, 4, 8 and 16");
  if (budget % indexer.group != 0)
    throw failure(errc::bad_file,
                  config.label("indexer_budget") + " must be a multiple of `indexer_compress_ratio`, found " +
                    std::to_string(budget) + " and " + std::to_string(indexer.group));
  const int rotated = model.rope.dims > 0 ? model.rope.dims : model.head_dim;
  if (indexer.dim % 2 != 0 || indexer.dim < rotated || (model.rope.dims == 0 && indexer.dim != rotated))
    unsupported_value(config, "indexer_head_dim", indexer.dim,
                      "are even numbers from the rotated dimensions of heads on, if these are a part");
  if (std::int64_t{indexer.heads} * indexer.dim > max_ffn)
    unsupported_value(config, "indexer_n_heads", indexer.heads, "are fewer heads of this width");
  indexer.top = budget + indexer.group - 1;
}

/// The first of `eos_token_id`.
int read_stop(const reader& config, const model_config& model) {
  const auto stops = config.integers("eos_token_id", 0, model.vocab - 1);
  if (!stops || stops->empty())
    throw failure(errc::bad_file, config.label("eos_token_id") + " is missing, at which n-grams of tokens end");
  return stops->front();
}

void read_grams(const reader& config, model_config& model) {
  auto at = config.integers("ple_layer_ids", 1, model.layers).value_or(std::vector<std::int32_t>());
  if (at.empty())
    return;
  std::ranges::sort(at);
  at.erase(std::unique(at.begin(), at.end()), at.end());
  for (const int layer : at)
    if (!model.parts_of(layer - 1).recurrence)
      throw failure(errc::unsupported,
                    config.label("ple_layer_ids") + " names layer " + std::to_string(layer) +
                      ", which is not linear_attention");
  auto& grams = model.grams;
  grams.size = config.integer("ngram_size", 2, most_gram, 3);
  grams.heads = config.integer("heads_per_ngram", 1, most_gram_heads, 8);
  grams.taps = config.integer("ple_conv_kernel_size", 2, max_taps, 4);
  grams.stop = read_stop(config, model);
  grams.parts = config.integer("split_ngram_parts", 1, most_table_parts, 512);
  grams.multiple = config.integer("make_ngram_vocab_size_divisible_by", 1, max_positions, 128);
  const int width = config.integer("ple_embed_dim", 1, max_ffn, model.hidden);
  if (width % grams.lookups() != 0)
    throw failure(errc::bad_file,
                  config.label("ple_embed_dim") + " must be a multiple of the " + std::to_string(grams.lookups()) +
                    " rows that a token looks up, found " + std::to_string(width));
  grams.dim = width / grams.lookups();
  if (at.size() * as_size(grams.lookups()) > most_hashes)
    unsupported_value(config, "heads_per_ngram", grams.heads, "are fewer hashes");
  if (std::int64_t(at.size()) * grams.parts > max_layer_experts)
    unsupported_value(config, "split_ngram_parts", grams.parts, "are fewer parts of all layers");
  const auto seed = static_cast<std::uint64_t>(
    config.integer("seed", std::numeric_limits<std::int64_t>::min() / 2, std::numeric_limits<std::int64_t>::max() / 2)
      .value_or(1234));
  std::int64_t prime = config.integer("ngram_vocab_size_base", 1, max_positions, 20000000) - 1;
  grams.layers.resize(as_size(model.layers));
  for (std::uint64_t i = 0; i < at.size(); ++i) {
    auto& hashes = grams.layers[as_size(at[i] - 1)];
    hashes.multipliers = multipliers_of(model.vocab, grams.size, seed + 10007 * i);
    for (int h = 0; h < grams.lookups(); ++h) {
      do
        ++prime;
      while (!is_prime(prime));
      hashes.rows.push_back(prime);
    }
    const auto each = grams.part_rows(at[i] - 1);
    if (each > std::numeric_limits<std::int32_t>::max() || each * (grams.parts - 1) >= grams.table_rows(at[i] - 1))
      unsupported_value(config, "split_ngram_parts", grams.parts,
                        "are parts of less than 2^31 rows, none of them empty");
  }
}

void read_qwen4_exp(const reader& config, model_config& model) {
  read_qwen_hybrid(config, model, {.ffn = nullptr, .default_kv_heads = 2, .default_partial = 1, .indexed = true});
  require_word(config, "output_gate_type", {"silu", "sigmoid"});
  model.recurrent.sigmoid_gate = config.string("output_gate_type") == "sigmoid";
  read_qwen_hybrid_experts(config, model, 512, 10);
  model.ffn = model.experts.ffn;
  model.experts.renormalise = config.boolean("norm_topk_prob", true);
  read_streams(config, model);
  read_groups_of_positions(config, model);
  read_grams(config, model);
}

} // namespace

row_order index_rows(const model_config& model, int first, int heads) {
  const int dim = model.indexer.dim;
  auto order = rotated_order(model.rope, dim);
  if (order.empty())
    for (int i = 0; i < dim; ++i)
      order.push_back(static_cast<std::uint32_t>(i));
  return in_each_head(order, heads, first);
}

namespace {

void arrange_qwen4_exp(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_qwen_hybrid(model, stored, to);
  tensor_arranger tensors(model, to);
  const auto& indexer = model.indexer;
  const auto queries = index_rows(model, 0, indexer.heads), keys = index_rows(model, indexer.heads * indexer.dim, 1),
             norms = index_rows(model, 0, 1);
  const auto shifted = [&](const std::string& name, const std::string& from) {
    stored_part part;
    part.name = from;
    part.offset = 1;
    to.tensors[name] = std::move(part);
  };
  shifted("model.hyper_connection_mixer.hc_norm.weight", "model.hyper_connection_mixer.hc_norm.weight");
  for (int layer = 0; layer < model.layers; ++layer) {
    for (const std::string part : {"attn", "mlp"}) {
      const auto name = part + "_hyper_connection.hc_norm.weight";
      shifted(tensors.presented(layer, name), tensors.stored(layer, name));
    }
    const auto indexed = [&](const char* name, const char* from, const row_order& rows, float offset) {
      stored_part part;
      part.name = tensors.stored(layer, std::string("self_attn.indexer.") + from);
      part.rows = rows;
      part.of_rows = offset != 0 ? as_size(indexer.dim) : as_size((indexer.heads + 1) * indexer.dim);
      part.offset = offset;
      tensors.add(layer, std::string("self_attn.indexer.") + name, std::move(part));
    };
    if (model.indexes(layer)) {
      indexed("wq_b.weight", "index_qk_proj.weight", queries, 0);
      indexed("wk.weight", "index_qk_proj.weight", keys, 0);
      indexed("q_norm.weight", "q_layernorm.weight", norms, 1);
      indexed("k_norm.weight", "k_layernorm.weight", norms, 1);
    }
    if (!model.grams.at(layer))
      continue;
    tensors.rename(
      layer,
      {{"grams.key_proj", "ple.key_proj"}, {"grams.value_proj", "ple.value_proj"}, {"grams.conv", "ple.conv1d"}});
    for (int part = 0; part < model.grams.parts; ++part)
      tensors.rename(layer, "grams.table." + std::to_string(part),
                     "ple.ple_embedding.ngram_embedding.shard_" + std::to_string(part));
    for (const auto& [name, from] :
         {std::pair("multipliers", "layer_multipliers"), std::pair("rows", "ngram_heads_vocab_sizes"),
          std::pair("first_rows", "ngram_heads_offsets")})
      tensors.take(layer, std::string("grams.") + name, std::string("ple.ple_embedding.") + from);
    for (const auto& [name, from] : {std::pair("key_norm", "norm_key"), std::pair("stream_norm", "norm_query"),
                                     std::pair("value_norm", "norm_conv")})
      shifted(tensors.presented(layer, std::string("grams.") + name + ".weight"),
              tensors.stored(layer, std::string("ple.") + from + ".weight"));
  }
}

} // namespace

const family qwen4_exp_text_family{"qwen4_exp_text", read_qwen4_exp, arrange_qwen4_exp};

} // namespace troupe::families
