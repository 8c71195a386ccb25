// A model's weights, packed for one kind of backend. Immutable, and lent to any number of executors.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/packed/weight_pager.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/precision.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace troupe {

class packed_cache;      // runtime/checkpoint/packed/packed_cache.hpp
struct weight_placement; // runtime/model/decoder/weight_placement.hpp

/// Called after each part of a load, in bytes as stored. May throw, which cancels the load.
using progress_fn = std::function<void(std::size_t done, std::size_t total)>;

/// Null where the model has none.
struct norm_weights {
  kernels::buffer weight, bias; // [hidden]
};

struct mlp_weights {
  std::shared_ptr<const kernels::matrix> gate_up; // up alone if there is no gate
  std::shared_ptr<const kernels::matrix> down;    // [hidden, ffn]
  kernels::buffer gate_up_bias, down_bias;        // or null
};

/// A mixture of experts.
struct mixture_weights {
  std::unique_ptr<const kernels::matrix> router; // [experts, hidden]
  kernels::buffer router_bias;                   // or null
  std::vector<float> correction;                 // [experts], in host memory; or empty
  std::vector<int> table;                        // [vocab, chosen], in host memory: a token's experts; or empty
  std::vector<mlp_weights> experts;
  kernels::activation act, shared_act;                // of experts, of the shared one
  mlp_weights shared;                                 // or nulls
  std::unique_ptr<const kernels::matrix> shared_gate; // [1, hidden], or null
  // expert_config::apart, or nulls:
  norm_weights router_norm, input_norm;  // of what router and experts read
  norm_weights shared_norm, result_norm; // of what shared expert and experts give
  std::vector<float> scales;             // [experts], of weights, in host memory
};

/// Numbers of each head by which queries grow, in host memory; or empty.
struct growth_weights {
  std::vector<float> scale, bias;
};

/// Latent attention, behind the products that make the latents.
struct latent_weights {
  kernels::buffer q_norm, kv_norm; // [q_rank] or null, [kv_rank] or null
  growth_weights growth;
  std::unique_ptr<const kernels::matrix> q;                       // [heads * (plain + rotated), q_rank], or null
  std::vector<std::unique_ptr<const kernels::matrix>> key, value; // of each head: [kv_rank, plain], [value, kv_rank]
};

/// What chooses the positions that attention sees.
struct index_weights {
  std::unique_ptr<const kernels::matrix> q;    // [heads * dim, q_rank], or of hidden
  std::unique_ptr<const kernels::matrix> key;  // [dim, hidden]; null where keys are entries
  norm_weights key_norm;                       // layer norm, [dim]; of plain ones RMS norm; of entries null
  std::unique_ptr<const kernels::matrix> head; // [heads, hidden], the heads' weights; null of plain ones
  norm_weights query_norm;                     // layer norm of what queries are made of, [hidden]; or null
  kernels::buffer head_norm;                   // of plain ones: RMS norm of each head's queries, [dim]
  growth_weights growth;
};

/// What entries are made of (kernels::entry_making).
struct entry_weights {
  std::unique_ptr<const kernels::matrix> made; // [2 * dim or twice that, hidden]: keys, then gates; or null
  kernels::buffer bias, norm;                  // [rate, dim or 2 * dim], [dim]
};

/// Attention over compressed keys.
struct compressed_weights {
  kernels::buffer q_norm, kv_norm;                            // [q_rank], [head_dim]
  std::unique_ptr<const kernels::matrix> q;                   // [heads * head_dim, q_rank]
  std::vector<std::unique_ptr<const kernels::matrix>> groups; // [group_rank, heads * head_dim / groups] each
  entry_weights entries, index_entries;                       // or nulls
};

/// A recurrent layer's mixer.
struct recurrent_weights {
  std::unique_ptr<const kernels::matrix> in;               // see recurrent_tensors
  std::unique_ptr<const kernels::matrix> rate_up, gate_up; // or null
  std::unique_ptr<const kernels::matrix> parts;            // or null
  std::unique_ptr<const kernels::matrix> out;
  kernels::buffer convolution;             // [taps][channels]
  kernels::buffer bias;                    // [channels], or null
  kernels::buffer in_bias, out_bias;       // or null
  kernels::buffer decay, dt_bias, skip;    // or null
  kernels::buffer norm;                    // [inner], or null
  kernels::buffer dt_norm, b_norm, c_norm; // [rank], [key_dim] twice; or null
};

/// A table of n-grams (gram_tensors). Convolutions are [taps][streams * hidden].
struct gram_weights {
  std::vector<std::unique_ptr<const kernels::matrix>> tables;
  std::vector<tensor_data> memory; // `tables` may refer to it
  std::unique_ptr<const kernels::matrix> key, value;
  kernels::buffer key_norm, stream_norm, value_norm, convolution;
};

/// Convolutions beside attention and MLP, [taps][channels]: what they read is part of what they give, and so is the scale
/// of the MLP's.
struct branch_weights {
  kernels::buffer convolutions[4]; // by branch_site
};

/// What a layer has of its own around a block that it shares with others.
struct shared_block_weights {
  norm_weights joined_norm;                             // the block's, [2 hidden]
  std::unique_ptr<const kernels::matrix> output;        // [hidden, hidden]
  std::unique_ptr<const kernels::matrix> qkv_pairs;     // see kernels/low_rank.hpp; or null
  std::unique_ptr<const kernels::matrix> gate_up_pairs; // likewise
};

/// Alternating updates, and the product of low rank beside attention.
struct altup_weights {
  std::unique_ptr<const kernels::matrix> router; // [streams, hidden]
  norm_weights router_norm;
  std::vector<float> predict, correct; // [streams * streams, streams] and [streams, streams], in host memory
  kernels::buffer output_scale;        // [hidden]
  std::unique_ptr<const kernels::matrix> laurel_down, laurel_up; // [laurel, hidden], [hidden, laurel]
  norm_weights laurel_norm;
};

/// How the streams of hyper-connections are mixed for what reads them.
struct hyper_weights {
  std::unique_ptr<const kernels::matrix> mix;      // [2 streams (+ streams²), streams * hidden], [streams, ...] of the
                                                   // head; with a rank: [streams, ...], null of the head
  std::vector<float> base, scale;                  // without a rank, in host memory
  std::unique_ptr<const kernels::matrix> down, up; // with a rank: [rank, streams * hidden] and the other way
  kernels::buffer norm;                            // of each stream, [streams * hidden]; without a rank ones
};

struct layer_weights {
  // Null without attention; behind qkv come gates of the heads, or mixes of distances, if there are any. Layers may share
  // them and the MLP.
  std::shared_ptr<const kernels::matrix> qkv;                          // [(heads + 2 kv_heads) * head_dim, hidden]
  std::shared_ptr<const kernels::matrix> o;                            // [hidden, heads * head_dim]
  std::unique_ptr<const shared_block_weights> block;                   // or null
  std::unique_ptr<const recurrent_weights> recurrent;                  // or null
  std::unique_ptr<const gram_weights> grams;                           // or null
  std::unique_ptr<const branch_weights> branches;                      // or null
  kernels::buffer distances;                                           // see kernels::distance_table; or null
  std::unique_ptr<const latent_weights> latent;                        // or null
  std::unique_ptr<const index_weights> indexer;                        // or null
  std::unique_ptr<const compressed_weights> compressed;                // or null
  std::unique_ptr<const altup_weights> altup;                          // or null
  std::unique_ptr<const hyper_weights> hyper_attention, hyper_mlp;     // or null
  norm_weights input_norm, post_norm;                                  // of what attention and MLP read
  norm_weights attention_norm, mlp_norm;                               // of what they give
  kernels::buffer q_norm, k_norm;                                      // [head_dim], or of all heads; or null
  kernels::buffer sinks;                                               // [heads], or null
  kernels::buffer qkv_bias, o_bias;                                    // or null
  std::unique_ptr<const kernels::matrix> input_gate, input_projection; // of layer inputs; or null
  norm_weights input_projection_norm;                                  // or null
  float scale = 1;                                                     // of what the layer gives
  kernels::activation act;                                             // of its MLP
  mlp_weights mlp;                                                     // or nulls
  std::unique_ptr<const mixture_weights> mixture;                      // or null
};

struct model_weights {
  model_config config;
  kernels::dtype compute = kernels::dtype::f32;
  mlp_sparsity sparsity;
  float attention_threshold = 0;
  std::unique_ptr<const kernels::matrix> embedding;   // [vocab, hidden], or null
  tensor_data embedding_memory;                       // `embedding` may refer to it
  std::unique_ptr<const kernels::matrix> positions;   // [position_rows, hidden], or null
  tensor_data positions_memory;                       // `positions` may refer to it
  std::unique_ptr<const kernels::matrix> token_types; // [token_types, hidden], or null
  tensor_data token_types_memory;
  norm_weights embedding_norm;                         // or null
  std::unique_ptr<const kernels::matrix> layer_inputs; // [vocab, layers * layer_inputs], or null
  tensor_data layer_inputs_memory;
  std::unique_ptr<const kernels::matrix> layer_projection;                 // [layers * layer_inputs, hidden], or null
  norm_weights layer_projection_norm;                                      // [layer_inputs], or null
  std::vector<std::unique_ptr<const kernels::matrix>> altup_in, altup_out; // [hidden, hidden] of streams from 1 on
  std::vector<layer_weights> layers;                                       // of config.part(), in order
  norm_weights final_norm;
  std::unique_ptr<const hyper_weights> hyper_head; // or null
  std::unique_ptr<const kernels::matrix> head;     // [vocab, hidden], or null
  kernels::buffer head_bias;                       // or null
  bool head_gives_embedding = false;               // `embedding` is the head's matrix
  std::size_t bytes = 0;                           // of device memory
  std::shared_ptr<weight_pager> pager;             // of matrices that are in a file; null: none is
  std::shared_ptr<const void> being_kept;          // what writes the packed weights; or null

  const layer_weights& layer(int i) const { return layers[static_cast<std::size_t>(i - config.part().first)]; }
};

/// A decoder's way through the weights that are in a file, on the threads of its backend.
weight_walk walk_through(const model_weights& weights, const kernels::backend& backend);

/// Where packed weights are kept, and which of them stay in memory.
struct weight_cache {
  packed_cache* files = nullptr;
  const weight_placement* placement = nullptr;
};

/// Checks, reads and packs all weights of the model, or of the part that `config` describes, and frees what it has read
/// before it reads more. Where matrices are quantised, the one that makes logits is in int8 at least; the embedding
/// table stays as stored, unless the head's matrix serves as one. Matrices in `cache` are neither read nor packed; the
/// others are added to it. Throws as packed_cache, `require_tensor` (unused tensors are not looked at) and
/// check_sparsity, device_error where memory runs out, and what `progress` throws.
std::shared_ptr<const model_weights> load_weights(const checkpoint& tensors, const model_config& config,
                                                  kernels::backend& backend, precision precision,
                                                  const progress_fn& progress = {}, weight_cache cache = {});

} // namespace troupe
