// What a configuration needs of a backend and of its memory. Decoders allocate by it, and memory estimates count with it.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/tensor_names.hpp"

#include <cstddef>

namespace troupe {

/// Bytes of a decoder's buffers: both what it allocates and what memory estimates count.
struct activation_sizes {
  std::size_t rope = 0;     // [max_context, head_dim], f32, for each kind of layer and length (rope_border)
  std::size_t residual = 0; // [max_rows, hidden], f32
  std::size_t normed = 0;   // [max_rows, hidden], compute type
  std::size_t qkv = 0;      // [max_rows, (heads + 2 kv_heads) * head_dim], f32; then mixes of distances
  std::size_t attended = 0; // [max_rows, heads * head_dim], compute type
  std::size_t spread = 0;   // heads with narrow values: what qkv gives, f32, later [max_rows, heads * head_dim]
  std::size_t ffn = 0;      // [max_rows, ffn or that of all experts that a row chooses], compute type
  std::size_t branch = 0;   // [max_rows, hidden], f32: what attention or MLP give, if it is changed before it is added
  std::size_t router = 0;   // [max_rows, experts], f32
  std::size_t weighed =
    0;                    // of experts whose inputs are weighed: [max_rows, hidden] in f32, then for each expert that a
                          // row chooses [max_rows, hidden] in f32 and in the compute type
  std::size_t inputs = 0; // layer inputs: [max_rows, layers * layer_inputs] twice, f32
  std::size_t ones = 0;   // norms of heads, or of parts, that have no weights: [head_dim], f32

  // Latent attention. Of the heads + 2 slots of a row, the first are those of queries, then that of the key, then that
  // of the value.
  std::size_t latent_down = 0;    // [max_rows, what qkv gives], f32
  std::size_t latent_queries = 0; // [max_rows, slots, plain + rotated], f32
  std::size_t latents = 0;        // [max_rows, slots, kv_rank], later [max_rows, heads * value], f32
  std::size_t latent_inputs = 0;  // [max_rows, widest input of a product of attention], compute type

  // Indexers.
  std::size_t index = 0;         // [max_rows, (heads + 1) * dim], f32: queries, then the key
  std::size_t index_weights = 0; // [max_rows, heads], f32
  std::size_t chosen = 0;        // [max_rows, top], int32

  // Alternating updates.
  std::size_t streams = 0;     // [streams, max_rows, hidden], f32; there are two of these
  std::size_t routed = 0;      // [max_rows, streams], f32
  std::size_t laurel = 0;      // [max_rows, hidden], f32
  std::size_t laurel_down = 0; // [max_rows, laurel], f32
  std::size_t laurel_low = 0;  // the same in the compute type
  std::size_t gates = 0;       // [max_rows, 2 ffn], f32

  // Attention over compressed keys.
  std::size_t compressed_down = 0;   // [max_rows, q_rank + head_dim], f32
  std::size_t compressed_made = 0;   // [max_rows, what an entry is made of, or groups * group_rank], f32
  std::size_t compressed_over = 0;   // [max_rows, heads * head_dim], f32
  std::size_t compressed_inputs = 0; // [max_rows, q_rank or heads * head_dim], compute type

  // Hyper-connections, `width` = streams * hidden.
  std::size_t hyper_streams = 0; // [max_rows, width], f32; twice where streams are mixed
  std::size_t hyper_normed = 0;  // [max_rows, width] in the compute type; with a rank also in f32, twice
  std::size_t hyper_mix = 0;  // [max_rows, what weighs streams, or the rank], f32; with a rank also in the compute type
  std::size_t hyper_ones = 0; // [width], f32, without a rank

  std::size_t index_input =
    0;                      // [max_rows, hidden], f32, and in the compute type: what an indexer's queries are made of
  std::size_t shortcut = 0; // [max_rows, hidden], f32: what experts give beside MLPs, until the next layer has ended

  // Shared blocks.
  std::size_t joined = 0;      // [max_rows, 2 hidden], f32: the residual, then the embeddings
  std::size_t joined_read = 0; // the same in the compute type

  // Recurrent layers.
  std::size_t recurrent_in = 0; // [max_rows, what the first product gives], f32
  std::size_t convolved = 0;    // [max_rows, channels], f32
  std::size_t recurred = 0;     // [max_rows, inner], f32
  std::size_t recurrent_rates =
    0; // [max_rows, heads * key_dim and inner], f32: channel_delta; parts and inner: selective
  std::size_t recurrent_low = 0; // [max_rows, rank], compute type: channel_delta, selective

  // Tables of n-grams.
  std::size_t grams_found = 0;   // [max_rows, width], f32, twice
  std::size_t grams_narrow = 0;  // the same once in the compute type
  std::size_t grams_streams = 0; // [max_rows, streams * hidden], f32; there are three of these
  std::size_t grams_values = 0;  // [max_rows, hidden], f32

  std::size_t branches = 0; // [max_rows, channels of the widest], f32: convolutions beside attention and MLPs

  std::size_t total() const {
    return branches + grams_found + grams_narrow + 3 * grams_streams + grams_values + rope + shortcut + index_input +
      residual + normed + qkv + attended + spread + ffn + branch + router + weighed + inputs + ones + latent_down +
      latent_queries + latents + latent_inputs + index + index_weights + chosen + 2 * streams + routed + laurel +
      laurel_down + laurel_low + gates + recurrent_in + convolved + recurred + recurrent_rates + recurrent_low +
      hyper_streams + hyper_normed + hyper_mix + hyper_ones + compressed_down + compressed_made + compressed_over +
      compressed_inputs + joined + joined_read;
  }
};
activation_sizes activation_bytes(const model_config& config, kernels::dtype compute, int max_rows, int max_context);

/// Bytes of pairs that are added to a product (kernels/low_rank.hpp), about: `stored` are tensor_names'.
std::size_t pair_bytes(const std::vector<wanted_tensor>& stored, kernels::dtype compute);

/// Whether the host takes part in each step: it chooses experts, or sends what depends on positions. What such steps
/// queue on a device cannot be replayed.
bool host_takes_part(const model_config& config);

/// Whether the host must know a step's tokens: for rows of tables of n-grams, and for experts that tokens choose.
bool host_reads_tokens(const model_config& config);

} // namespace troupe
