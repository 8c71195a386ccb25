// A model's description: sizes, norms, positions, attention, MLP, experts and multipliers, as data that configures the
// one decoder graph, and the defaults for generation that its authors recommend. The files in `families` read it from
// config.json. Read once at load, immutable afterwards.
#pragma once

#include "kernels/formats/activation.hpp"
#include "runtime/checkpoint/quantised/quantised_storage.hpp"
#include "runtime/model/expert_router.hpp"
#include "runtime/model/generation_defaults.hpp"
#include "runtime/model/gram_config.hpp"
#include "runtime/model/layer_span.hpp"
#include "runtime/model/recurrent_config.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/types.hpp"

#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

namespace json {
class document;
}

enum class norm_type : std::uint8_t { rms, layer };

/// Where a layer normalises: what attention and MLP read (`before`), what they give (`after`), both, or their sums with
/// the residual (`sum`), as the first transformers did; or nothing, as streams are normed where they are mixed (`none`).
enum class norm_place : std::uint8_t { before, after, both, sum, none };

enum class position_type : std::uint8_t { rotary, learned, alibi, distances };

/// Multi-head latent attention (https://arxiv.org/abs/2405.04434, section 2.1), computed in the absorbed form: a
/// token's key is [normed latent, rotated shared key], its value the latent; one KV head serves all heads of queries.
struct latent_config {
  int q_rank = 0;               // of the queries' own latent; 0: queries are projected at once
  int kv_rank = 0;              // even; 0: attention is not latent
  int plain = 0;                // dimensions of a head's queries and keys that are not rotated
  int rotated = 0;              // and that are; even
  int value = 0;                // dimensions of a head's values
  float norm_eps = 1e-6f;       // of the latents' norms
  bool plain_unrotated = false; // in layers without rotation, dimensions that others rotate are plain ones

  explicit operator bool() const { return kv_rank > 0; }
  bool operator==(const latent_config&) const = default;
};

/// A learned indexer (DeepSeek V3.2, https://arxiv.org/abs/2512.02556, section 2.1): small heads with keys of their own
/// score the context, and attention sees the positions of the highest scores alone.
struct indexer_config {
  int heads = 0; // of queries, which share a key; 0: there is none
  int dim = 0;   // of queries and keys; even
  int top = 0;   // positions that a row attends to, at most
  // Of neighbouring positions, which are chosen together by the normed mean of their keys, and beside them a row
  // attends to those behind the last whole group; heads are normed and have no weights. 1: there are no groups.
  int group = 1;
  // Or neighbouring positions of which each KV head chooses some by one head of queries, the last `newest` in any case;
  // likewise normed, without weights. 0: there are no blocks.
  int block = 0;
  int newest = 1;
  bool pairs = false;            // checkpoints rotate neighbours together
  bool last = false;             // checkpoints rotate the last dimensions of a head, not the first
  float norm_eps = 1e-6f;        // of the norms of keys
  bool reads_hidden = false;     // queries are made of what the layer reads, behind a layer norm, not of their latent
  std::vector<bool> shared = {}; // [layers]: takes the choice of the layer before; or empty: none does
  std::vector<bool> at = {};     // [layers]: attention sees what is chosen; or empty: in all

  explicit operator bool() const { return heads > 0; }
  bool operator==(const indexer_config&) const = default;

  /// Heads are RMS-normed, queries are made of what the layer reads, and there are no weights.
  bool plain() const { return group > 1 || block > 0; }
  int choices() const { return block > 0 ? heads : 1; }
  /// `top`, or as few whole blocks or groups as a row that sees `context` positions need not choose among.
  int top_within(int context) const;
};

/// Attention over compressed keys (DeepSeek V4): there is one KV head, whose key is the value, too. A row sees the last
/// tokens, and entries that are made of groups of tokens.
struct compressed_config {
  int q_rank = 0;                 // of the queries' latent; 0: attention is not of this kind
  int window = 0;                 // tokens that a row sees, its own included
  int groups = 0, group_rank = 0; // of heads, of which each has a product of that rank behind attention
  std::vector<int> rates = {};    // [layers]: tokens of a group; 0: there are no entries
  std::vector<bool> indexed = {}; // [layers]: entries take of the group before, too, and an indexer chooses among them

  explicit operator bool() const { return q_rank > 0; }
  bool operator==(const compressed_config&) const = default;
};

/// Learned numbers in place of rotations (kernels/distance_attention.hpp): each head of a row mixes `width` rows of
/// numbers, which have one for each distance below an extent: in layers with a window that of the window.
struct distance_config {
  int width = 0; // 0: there are none
  int extent = 0;

  explicit operator bool() const { return width > 0; }
  bool operator==(const distance_config&) const = default;
};

/// Scores of queries grow with their positions: by 1 + rate * log(1 + floor((position + first) / period)).
struct query_growth {
  float rate = 0; // 0: they do not
  int period = 0;
  int first = 0;
  bool unrotated = false;  // only in layers without rotation
  bool unwindowed = false; // only in layers without a window
  bool smooth = false;     // by 1 + rate * log((position + first) / period), where that is above 1

  explicit operator bool() const { return rate != 0; }
  bool operator==(const query_growth&) const = default;
};

/// Blocks of attention and an MLP that several layers use in turn (https://arxiv.org/abs/2411.15242). Such a layer's
/// attention reads the residual joined to the embeddings, the MLP what attention gives, and the layer's recurrence what a
/// matrix of the layer makes of that, added to the residual. The layer's `parts` are all three.
struct shared_blocks_config {
  int count = 0;          // 0: there are none
  int mlp_rank = 0;       // of the pair of matrices that each layer adds to the product with gate and up; 0: none
  int attention_rank = 0; // likewise with q, k and v

  explicit operator bool() const { return count > 0; }
  bool operator==(const shared_blocks_config&) const = default;
};

/// Alternating updates (https://arxiv.org/abs/2301.13310): layers compute one of several streams and correct the
/// others; beside attention is a product of low rank.
struct altup_config {
  int streams = 0; // 0: there is one, the residual
  int active = 0;  // that layers compute
  int laurel = 0;  // rank of that product
  bool scaled = true;

  explicit operator bool() const { return streams > 0; }
  bool operator==(const altup_config&) const = default;
};

/// Hyper-connections (https://arxiv.org/abs/2409.19606): there are several residual streams. What attention or an MLP reads
/// is mixed of them, and what it gives is added to each by weights that the row's streams make.
/// Without `rank` (https://arxiv.org/abs/2512.24880) a stream has one weight, and the streams are mixed among each other by
/// a matrix whose rows and columns sum to 1; without `passes`, either, they are not mixed. With it, each element has a
/// weight of its own, made by a product of that rank of the normed streams, and streams stay as they are.
struct hyper_config {
  int streams = 0;     // 0: there is one, the residual
  int rank = 0;        // 0: none
  int passes = 0;      // without rank: over rows and columns of that matrix (Sinkhorn); 0: there is none
  float eps = 1e-6f;   // without rank: of weights and sums; of weights of writing only where streams are not mixed
  float magnitude = 2; // of the weights of writing

  bool mixes() const { return passes > 0; }
  explicit operator bool() const { return streams > 0; }
  bool operator==(const hyper_config&) const = default;
};

struct model_config {
  std::string family;     // `model_type` of config.json
  std::string multimodal; // and that of a model whose text this is; or empty
  int vocab = 0;
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0; // divides heads
  int head_dim = 0; // even; heads * head_dim may differ from hidden
  int ffn = 0;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool head_bias = false;
  bool qk_norm = false;         // RMS norm of each head's q and k
  bool qk_norm_whole = false;   // with qk_norm: of all heads' q together, and of all k
  bool qk_norm_layer = false;   // with qk_norm_whole: layer norm of each head, with weights of its own
  bool qk_norm_behind = false;  // with qk_norm: behind the rotation
  bool qk_norm_plain = false;   // with qk_norm: without weights
  bool qk_norm_rotated = false; // with qk_norm: in layers with rotation only
  float qkv_clip = 0;           // q, k and v are cut to this magnitude, behind norms of whole q and k; 0: not
  bool value_norm = false;      // RMS norm of each head's v, without weights
  bool tied = false;            // the head is the embedding matrix
  float norm_eps = 1e-6f;
  std::vector<int> windows; // [layers]: positions that a token attends to, its own included; 0: all
  std::vector<int> chunks;  // [layers]: attention reaches back to the last multiple of this; 0: any; or empty
  int max_context = 0;      // tokens, rope scaling included
  rope_config rope;

  norm_type norm = norm_type::rms;
  norm_place norms = norm_place::before;
  bool recurrence_normed_before = false; // layers with a recurrence norm what they read, wherever others do
  bool norm_bias = false;                // layer norm
  bool mixture_norm = false;             // what experts give together is normed, too, even with norms `before` alone
  bool plain_norm = false;               // norms have no weights
  bool parallel = false;                 // attention and MLP read the same residual, and both are added to it
  bool shared_norm = false;              // with `parallel`: both read the same norm
  bool skips_first_norm = false;         // the first layer's attention reads the residual itself
  bool embedding_norm = false;           // of the embeddings
  bool embedding_norm_plain = false;     // without weights
  float after_eps = 0;                   // the epsilon of norms of what attention and MLP give; 0: norm_eps
  bool final_norm = true;

  bool encoder = false;  // every token sees the whole text (or `window` - 1 each side), and there is no output head
  bool headless = false; // there is no output head, though tokens see only what is before them
  int token_types = 0;   // rows of the table of first and second texts; 0: there is none

  position_type positions = position_type::rotary;
  std::size_t position_rows = 0;         // learned: rows of the table
  std::size_t position_offset = 0;       // learned: rows before that of position 0
  std::optional<rope_config> local_rope; // of layers with a window; else `rope` is for all
  std::vector<bool> unrotated;           // [layers]: without rotation; or empty
  query_growth growth;
  // Queries are multiplied by scale * log(1 + position) + bias, numbers of each head, and so are those of indexers.
  bool head_growth = false;
  bool learned_frequencies = false; // of `rope` are multiplied by e^alpha, which is stored
  // Layers with a window have other K and V than the others; 0: the same. Then `head_dim` and `kv_heads` are the most.
  int local_head_dim = 0, local_kv_heads = 0;
  int local_heads = 0;   // of queries in layers with a window; 0: heads
  int value_dim = 0;     // of a head's values where it is less than head_dim; 0: head_dim. The cache has zeros behind
  int full_kv_heads = 0; // of layers without a window, if fewer than kv_heads; 0: kv_heads
  std::vector<int> kv_layers; // [layers]: the layer whose K and V attention reads, at most its own; or empty: its own
  std::vector<int> ffns;      // [layers]: of the MLP; or empty: `ffn`
  int layer_inputs = 0;       // width of what each layer gets of each token beside the residual; 0: nothing
  int layer_input_rows = 0;   // of their table: tokens beyond have the first one's; 0: a row for every token
  bool layer_scales = false;  // each layer's result is multiplied by a stored number

  altup_config altup;
  hyper_config hyper;
  shared_blocks_config shared_blocks;
  std::vector<float> gate_cutoffs; // [layers]: deviations above a row's mean from which on gates count; or empty

  latent_config latent;   // where it is: kv_heads is 1, and head_dim is kv_rank + rotated
  indexer_config indexer; // of latent attention, of grouped heads, or of entries
  compressed_config compressed;
  distance_config distances;  // with positions `distances`
  float attention_scale = 0;  // of q · k; 0: 1 / sqrt(head_dim)
  bool inverse_scale = false; // or it is 1 / head_dim
  float attention_cap = 0;    // scores are cap * tanh(score / cap); 0: not
  bool attention_sinks = false;
  bool window_sinks = false; // in layers with a window
  float alibi_scale = 1;     // alibi: of the distances, beside the heads' slopes

  bool gated = true; // MLP with gate and up
  kernels::activation act{kernels::activation_type::silu};
  // [layers], where gates and ups are cut (activation_type::cut_swiglu) in MLPs and shared experts, and in experts; 0:
  // they are not; or empty.
  std::vector<float> mlp_limits, expert_limits;

  float embedding_scale = 1;
  float residual_scale = 1; // of what attention and MLP add
  float logit_scale = 1;
  float logit_cap = 0; // logits are cap * tanh(logit / cap); 0: not

  std::vector<layer_parts> parts; // [layers]; or empty: attention and an MLP in each
  recurrent_config recurrent;     // of the layers with a recurrence
  gram_config grams;              // of layers with tables of n-grams, which are ahead of the rest of a layer
  bool attention_gate = false;    // what a head gives is multiplied by the sigmoid of a gate
  bool softplus_gate = false;     // or by its softplus

  expert_config experts;
  std::vector<bool> sparse; // [layers]: an MLP of experts; or empty: none
  std::vector<bool> hashed; // [layers]: a token's experts are in a table, and the router only weighs them; or empty

  std::optional<layer_span> span; // the part of the model that this describes; null: all of it

  /// Numbers of a row that layers pass on: all its streams, or beside the residual the embeddings, which blocks read.
  int residual_width() const { return hidden * (hyper ? hyper.streams : shared_blocks ? 2 : 1); }
  bool slides(int layer) const { return windows[static_cast<std::size_t>(layer)] > 0; }
  int head_dim_of(int layer) const { return local_head_dim > 0 && slides(layer) ? local_head_dim : head_dim; }
  int heads_of(int layer) const { return local_heads > 0 && slides(layer) ? local_heads : heads; }
  float attention_scale_of(int layer) const {
    const auto dim = static_cast<float>(head_dim_of(layer));
    return inverse_scale ? 1 / dim : attention_scale != 0 ? attention_scale : 1 / std::sqrt(dim);
  }
  int distance_extent_of(int layer) const {
    return slides(layer) ? windows[static_cast<std::size_t>(layer)] : distances.extent;
  }
  /// Numbers of a row by which a layer's heads mix those of distances.
  int mixes_of(int layer) const { return heads_of(layer) * distances.width; }
  /// The width of a head's values as they are multiplied; the cache's is head_dim_of.
  int value_dim_of(int layer) const { return latent ? latent.value : value_dim > 0 ? value_dim : head_dim_of(layer); }
  norm_place norms_of(int layer) const {
    return recurrence_normed_before && parts_of(layer).recurrence ? norm_place::before : norms;
  }
  /// Whether what a layer's attention gives is normed, and what its MLP gives.
  bool norms_attention(int layer) const {
    return norms_of(layer) != norm_place::before && norms_of(layer) != norm_place::none;
  }
  bool norms_mlp(int layer) const { return norms_attention(layer) || (mixture_norm && is_sparse(layer)); }
  bool has_sinks(int layer) const { return attention_sinks || (window_sinks && slides(layer)); }
  bool rotates_locally(int layer) const {
    return local_rope && (compressed ? compressed.rates[static_cast<std::size_t>(layer)] == 0 : slides(layer));
  }
  /// How layers with a window rotate, or those without entries; or the others.
  const rope_config& rope_of(int layer) const { return rotates_locally(layer) ? *local_rope : rope; }
  /// Numbers of a row that the last product of attention reads.
  int attended_of(int layer) const {
    return compressed ? compressed.groups * compressed.group_rank : heads_of(layer) * value_dim_of(layer);
  }
  kernels::activation act_of(int layer) const { return cut(mlp_limits, layer); }
  kernels::activation expert_act_of(int layer) const { return cut(expert_limits, layer); }
  int kv_heads_of(int layer) const {
    const int own = slides(layer) ? local_kv_heads : full_kv_heads;
    return own > 0 ? own : kv_heads;
  }
  int kv_layer_of(int layer) const { return kv_layers.empty() ? layer : kv_layers[static_cast<std::size_t>(layer)]; }
  bool has_kv(int layer) const { return parts_of(layer).attention && kv_layer_of(layer) == layer; }
  /// The layer of the cache whose K and V a layer's attention reads. Layers without their own have none there.
  int cache_layer_of(int layer) const {
    const int from = kv_layer_of(layer), first = part().first;
    if (kv_layers.empty() && parts.empty())
      return from - first;
    int index = 0;
    for (int i = first; i < from; ++i)
      index += has_kv(i) ? 1 : 0;
    return index;
  }
  /// Whether a layer attends to chosen positions, and whether it has an indexer of its own.
  bool chooses(int layer) const {
    return indexer && parts_of(layer).attention && (indexer.at.empty() || indexer.at[static_cast<std::size_t>(layer)]);
  }
  bool indexes(int layer) const {
    const auto i = static_cast<std::size_t>(layer);
    return chooses(layer) && (indexer.shared.empty() || !indexer.shared[i]) && (!compressed || compressed.indexed[i]);
  }
  /// The layer of the cache that has the keys of a layer's indexer: behind those of K and V.
  int index_layer_of(int layer) const {
    int index = cached_layers();
    for (int i = part().first; i < layer; ++i)
      index += indexes(i) ? 1 : 0;
    return index;
  }
  /// The first of the layers of the cache that compressed keys of a layer have, behind those of indexers: entries, and
  /// what they are made of; then what keys of its indexer are made of.
  int entry_layer_of(int layer) const {
    int index = index_layer_of(part().end);
    for (int i = part().first; i < layer; ++i)
      if (compressed.rates[static_cast<std::size_t>(i)] > 0)
        index += indexes(i) ? 3 : 2;
    return index;
  }
  bool is_hashed(int layer) const { return !hashed.empty() && hashed[static_cast<std::size_t>(layer)]; }
  int ffn_of(int layer) const { return ffns.empty() ? ffn : ffns[static_cast<std::size_t>(layer)]; }
  int chunk_of(int layer) const { return chunks.empty() ? 0 : chunks[static_cast<std::size_t>(layer)]; }
  bool qk_normed(int layer) const { return qk_norm && !(qk_norm_rotated && is_unrotated(layer)); }
  bool has_head(const layer_span& part) const { return part.heads && !encoder && !headless; }
  bool has_head() const { return has_head(part()); }

  /// Whether few gates of a layer's MLP count.
  bool cuts_gates(int layer) const {
    return !gate_cutoffs.empty() &&
      gate_cutoffs[static_cast<std::size_t>(layer)] >= std::numeric_limits<float>::lowest();
  }
  bool is_sparse(int layer) const { return !sparse.empty() && sparse[static_cast<std::size_t>(layer)]; }
  bool is_unrotated(int layer) const {
    return positions != position_type::rotary || (!unrotated.empty() && unrotated[static_cast<std::size_t>(layer)]);
  }

  /// Dimensions of latent attention's queries and keys that a layer rotates, and that it does not.
  int latent_rotated_of(int layer) const { return latent.plain_unrotated && is_unrotated(layer) ? 0 : latent.rotated; }
  int latent_plain_of(int layer) const { return latent.plain + latent.rotated - latent_rotated_of(layer); }

  layer_parts parts_of(int layer) const {
    return parts.empty() ? layer_parts() : parts[static_cast<std::size_t>(layer)];
  }
  /// Layers with K and V of their own in the part that this describes.
  int cached_layers() const {
    int count = 0;
    for (int i = part().first; i < part().end; ++i)
      count += has_kv(i) ? 1 : 0;
    return count;
  }
  /// Layers with a recurrence, likewise, up to `layer`.
  int state_layer(int layer) const {
    int count = 0;
    for (int i = part().first; i < layer; ++i)
      count += parts_of(i).recurrence ? 1 : 0;
    return count;
  }
  int state_layers() const { return state_layer(part().end); }
  /// Whether sequences have a state in the part that this describes.
  bool has_states() const { return state_layers() > 0 || recurrent.type == recurrent_type::branches; }

  /// The first layer of the model that uses the block which a layer uses, if it uses any: the block is named after it.
  int block_layer(int layer) const { return first_with_block(layer, 0); }
  /// Whether a layer uses a block, and is the first of the part to use that one.
  bool holds_block(int layer) const {
    return shared_blocks && parts_of(layer).attention && first_with_block(layer, part().first) == layer;
  }
  /// Whether attention's and the MLP's weights are another layer's.
  bool borrows_block(int layer) const { return shared_blocks && parts_of(layer).attention && !holds_block(layer); }
  /// What attention reads.
  int attention_input() const { return shared_blocks ? 2 * hidden : hidden; }

  layer_span part() const { return span.value_or(layer_span{0, layers, true, true}); }

  bool operator==(const model_config&) const = default;

private:
  /// The first layer from `first` on that uses the block of `layer`.
  int first_with_block(int layer, int first) const {
    int uses = 0;
    for (int i = 0; i < layer; ++i)
      uses += parts_of(i).attention ? 1 : 0;
    for (int i = 0, other = 0; shared_blocks && i < layer; ++i)
      if (parts_of(i).attention && other++ % shared_blocks.count == uses % shared_blocks.count && i >= first)
        return i;
    return layer;
  }
  kernels::activation cut(const std::vector<float>& limits, int layer) const {
    const float limit = limits.empty() ? 0 : limits[static_cast<std::size_t>(layer)];
    return limit > 0 ? kernels::activation{kernels::activation_type::cut_swiglu, act.alpha, limit} : act;
  }
};

/// Reads a `config.json` as transformers 4 or 5 writes it. Absent keys take transformers' defaults, but sizes are
/// required, except in configurations within those of multimodal models, whose text is read. `dtype` (`torch_dtype`) is
/// not read: the tensors have types of their own. Throws failure(bad_file | unsupported) naming the file and the key.
model_config parse_model_config(const json::document& config);

/// Reads a `generation_config.json`; null if there is none.
generation_defaults parse_generation_config(const json::document* generation, const json::document& config);

/// All configuration files of a checkpoint's folder. Only config.json is required.
struct checkpoint_config {
  model_config model;
  generation_defaults generation;
  std::optional<quantised_storage> quantised;
};
/// Reads them. A multimodal model gives the configuration of its text part.
checkpoint_config read_config(const std::filesystem::path& folder);

} // namespace troupe
