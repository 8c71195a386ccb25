// The decoder graph, written once for all families and configured by data. It borrows weights, and is used by the
// thread that uses its backend.
#pragma once

#include "kernels/ops.hpp"
#include "kernels/sparse_attention.hpp"
#include "runtime/checkpoint/packed/weight_pager.hpp"
#include "runtime/model/decoder/weights.hpp"
#include "runtime/support/types.hpp"
#include "runtime/techniques/layer_hook.hpp"
#include "runtime/techniques/products.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace troupe::kernels {
class gaussian_gates;    // kernels/gaussian_gates.hpp
class low_rank_products; // kernels/low_rank.hpp
} // namespace troupe::kernels

namespace troupe {

/// Bytes of a decoder's buffers: both what it allocates and what memory estimates count.
struct activation_sizes {
  std::size_t rope = 0;     // [max_context, head_dim], f32, for each kind of layer and length (rope_border)
  std::size_t residual = 0; // [max_rows, hidden], f32
  std::size_t normed = 0;   // [max_rows, hidden], compute type
  std::size_t qkv = 0;      // [max_rows, (heads + 2 kv_heads) * head_dim], f32
  std::size_t attended = 0; // [max_rows, heads * head_dim], compute type
  std::size_t spread = 0;   // heads with narrow values: what qkv gives, f32, later [max_rows, heads * head_dim]
  std::size_t ffn = 0;      // [max_rows, ffn or that of all experts that a row chooses], compute type
  std::size_t branch = 0;   // [max_rows, hidden], f32: what attention or MLP give, if it is changed before it is added
  std::size_t router = 0;   // [max_rows, experts], f32
  std::size_t weighed =
    0;                    // of experts whose inputs are weighed: [max_rows, hidden] in f32, then for each expert that a
                          // row chooses [max_rows, hidden] in f32 and in the compute type
  std::size_t inputs = 0; // layer inputs: [max_rows, layers * layer_inputs] twice, f32
  std::size_t ones = 0;   // norms of heads that have no weights: [head_dim], f32

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

  // Recurrent layers.
  std::size_t recurrent_in = 0;    // [max_rows, what the first product gives], f32
  std::size_t convolved = 0;       // [max_rows, channels], f32
  std::size_t recurred = 0;        // [max_rows, inner], f32
  std::size_t recurrent_rates = 0; // [max_rows, heads * key_dim and inner], f32: channel_delta
  std::size_t recurrent_low = 0;   // [max_rows, rank], compute type: channel_delta

  std::size_t total() const {
    return rope + residual + normed + qkv + attended + spread + ffn + branch + router + weighed + inputs + ones +
      latent_down + latent_queries + latents + latent_inputs + index + index_weights + chosen + 2 * streams + routed +
      laurel + laurel_down + laurel_low + gates + recurrent_in + convolved + recurred + recurrent_rates + recurrent_low;
  }
};
activation_sizes activation_bytes(const model_config& config, kernels::dtype compute, int max_rows, int max_context);

/// Whether the model needs more of a backend than the ops that all have (ops.hpp: "ops of further families").
bool needs_family_ops(const model_config& config);

/// Whether the host takes part in each step: it chooses experts, or sends what depends on positions. What such steps
/// queue on a device cannot be replayed.
bool host_takes_part(const model_config& config);

/// Keeps the buffers of its activations, so that a step allocates nothing. The residual stream is f32; linear ops read
/// the compute type; logits are f32.
class decoder {
public:
  /// Makes a decoder for steps of up to `max_rows` rows and positions below `max_context`. `backend` must outlive it,
  /// be of the kind that the weights were packed for, and is used by the thread that calls `forward`.
  decoder(std::shared_ptr<const model_weights> weights, kernels::backend& backend, int max_rows, int max_context);

  /// One forward pass over prefill chunks, decode rows and rows of guesses alike. `tokens` [rows]; the sequences of
  /// `who` cover the rows in order; the cache holds all their earlier positions. Writes the logits of `logit_rows`
  /// (indices into the rows; may be empty), in their order, to `logits`, f32 [logit_rows, vocab] in device memory, and
  /// likewise the hidden states behind the final norm of `hidden_rows` to `hidden`, f32 [hidden_rows, hidden]. Calls
  /// `hook`, if there is one, ahead of the layers and behind each; adds `added`, null or not empty, to the products of
  /// their rows.
  /// In a model with recurrent layers, sequence i of a batch that says nothing of states has the i-th of the decoder's
  /// own, and goes on where it was. Throws failure(internal) if the arguments contradict each other or the sizes given
  /// at construction.
  void forward(std::span<const token_id> tokens, const kernels::batch& who, std::span<const std::int32_t> logit_rows,
               kernels::kv_cache& cache, const kernels::tensor& logits, std::span<const std::int32_t> hidden_rows = {},
               const kernels::tensor& hidden = {}, const layer_hook& hook = {}, added_products* added = nullptr);

  // A decoder of a span of layers (model_config::span) runs in parts: `embed`, or `receive` with what the span before
  // it gave; `run`; `conclude`, or `residual` for the span behind. `forward` does all of it. Conditions are the same.

  void embed(std::span<const token_id> tokens, const kernels::batch& who);

  /// Copies the residual stream of the layers before: f32 [rows, hidden], in device memory.
  void receive(const kernels::tensor& rows);

  /// Where so many rows belong, f32 [rows, hidden], for a caller who copies them there before `run`.
  kernels::tensor receive(std::size_t rows);

  /// The span's layers. `cache` has them alone.
  void run(const kernels::batch& who, kernels::kv_cache& cache, const layer_hook& hook = {},
           added_products* added = nullptr);

  /// The residual stream of the step's rows, f32 [rows, hidden]; valid until the next step.
  kernels::tensor residual() const;

  void conclude(std::span<const std::int32_t> logit_rows, const kernels::tensor& logits,
                std::span<const std::int32_t> hidden_rows = {}, const kernels::tensor& hidden = {});

  /// The output head alone: logits, f32 [rows, vocab], of what the final norm, or another layer, gives, [rows, hidden]
  /// in the compute type. The model's logit scale and cap are part of it.
  void project(const kernels::tensor& logits, const kernels::tensor& states);

  const model_weights& weights() const { return *weights_; }
  int max_rows() const { return max_rows_; }
  int max_context() const { return max_context_; }

private:
  /// How the layers of a kind rotate.
  struct rotation {
    kernels::buffer rows, longer; // see kernels::rope_rows
    int border = 0;

    kernels::rope_rows get() const {
      return {static_cast<const float*>(rows.get()), static_cast<const float*>(longer.get()), border};
    }
  };

  /// residual += attention of layer `i` of what it reads.
  void add_attention(int i, const kernels::tensor& residual, const kernels::tensor& normed, kernels::kv_cache& cache,
                     const kernels::batch& who);

  // altup_decoder.cpp:

  /// `run` where layers compute one of several streams.
  void run_streams(const kernels::batch& who, kernels::kv_cache& cache, const layer_hook& hook);
  /// Stream `index` of the step's rows, f32.
  kernels::tensor stream(const kernels::buffer& of, int index) const;
  /// Factors by which the rows of `from` get the lengths of those of `to`.
  std::vector<float> lengths_to(const kernels::tensor& from, const kernels::tensor& to);
  /// The other streams, of the residual; and the residual, of all.
  void spread_streams();
  void merge_streams();
  std::vector<float> stream_coefficients(const altup_weights& w, const kernels::tensor& of,
                                         const std::vector<float>& by, std::size_t outputs);
  void predict_streams(const altup_weights& w);
  /// Corrects the streams by what the layer computed, which is in the residual.
  void correct_streams(const altup_weights& w);
  /// Leaves in `laurel_` what is added beside attention.
  void add_laurel(const layer_weights& layer, const kernels::tensor& residual, const kernels::tensor& normed);
  void add_stream_inputs(int i, const kernels::tensor& normed);
  /// out = gates of layer `i` that count, times up.
  void gate_gaussian(int i, const kernels::tensor& out, const kernels::tensor& normed);

  // recurrent_decoder.cpp:

  /// The states of a step, before its first layer; null if the model has none.
  kernels::state_cache* begin_states(const kernels::batch& who);
  /// residual += the recurrence of layer `i` of what it reads.
  void add_recurrence(int i, const kernels::tensor& residual, const kernels::tensor& normed,
                      kernels::state_cache& states);
  void gate_attention(const kernels::tensor& attended, const kernels::tensor& gate);

  void normalise(const kernels::tensor& to, const kernels::tensor& from, const norm_weights& norm,
                 const std::int32_t* rows = nullptr, float eps = 0);

  /// attended = attention of layer `i`, which reads `normed`.
  void attend(int i, const kernels::tensor& normed, const kernels::tensor& attended, kernels::kv_cache& cache,
              const kernels::batch& who);

  /// Puts what a product with qkv gives to where heads with narrow values have them, with zeros behind.
  void spread_values(int i, const kernels::tensor& to, const kernels::tensor& product);

  /// Norms of q, k and v that are not part of the rotation.
  void normalise_heads(int i, const kernels::tensor& qkv);

  /// Makes a step's queries grow with their positions, if the model asks for it.
  void grow_queries(int i, const kernels::tensor& queries);

  /// What layers get of each token of the step.
  void make_layer_inputs(std::span<const token_id> tokens);

  /// residual += what layer `i` makes of its own input of each token.
  void add_layer_input(int i, const kernels::tensor& residual, const kernels::tensor& normed);

  /// Attention of layer `i` where it is latent. Leaves the heads' values, [rows, heads * value], in the memory of
  /// `attended`.
  void attend_latent(int i, const kernels::tensor& normed, const kernels::tensor& attended, kernels::kv_cache& cache,
                     const kernels::batch& who);

  /// What an indexer makes of rows, in `index_`: queries of its heads, then the key.
  kernels::tensor index_rows(std::size_t rows) const;

  /// The choice of positions of layer `i`, if it has an indexer of its own; `index_` has its queries.
  void choose_positions(int i, const kernels::tensor& normed, kernels::kv_cache& cache, const kernels::batch& who);

  /// Fills `qkv_`: queries in the space of latents, the key and the value of each row.
  void make_latents(const layer_weights& layer, const kernels::tensor& normed);

  /// What is added to a product of layer `i`, for `low_rank_`; mostly empty.
  std::span<const kernels::row_group> added_at(int i, product_site site) const {
    return added_ ? added_->at(i, site) : std::span<const kernels::row_group>();
  }

  /// out (+)= in · wᵀ + bias, and what is added to that product of layer `i`.
  void multiply(int i, product_site site, const kernels::tensor& out, const kernels::tensor& in,
                const kernels::matrix& w, const kernels::buffer& bias, kernels::store how);

  /// residual += the product of a site of layer `i`, normalised and scaled as the model asks.
  void add_branch(int i, product_site site, const kernels::tensor& residual, const kernels::tensor& in,
                  const kernels::matrix& w, const kernels::buffer& bias, const norm_weights& norm, float scale = 1);
  void add_changed(const kernels::tensor& residual, const kernels::tensor& branch, const norm_weights& norm,
                   float scale = 1);

  /// residual += the MLP of layer `i` of what it reads.
  void add_mlp(int i, const kernels::tensor& residual, const kernels::tensor& normed);

  /// Makes zeros of a share of the inputs of an MLP's product, if the model is to be approximated so.
  void drop_smallest(const kernels::tensor& in, float share, const kernels::matrix& w);

  /// to = the sum of the experts' results, each row's in the order of the experts.
  void mix(const kernels::tensor& to, const kernels::tensor& normed, const mixture_weights& mixture,
           const layer_weights& layer, const kernels::tensor& residual);

  /// Mixes where router, experts and shared expert have norms of their own; overwrites `normed`.
  void mix_apart(const kernels::tensor& to, const kernels::tensor& normed, const mixture_weights& mixture,
                 const kernels::tensor& residual);

  /// Leaves the router's logits of each row in `router_`.
  void score_experts(const kernels::tensor& in, const mixture_weights& mixture);
  /// The experts of each row, by what they read, or by logits that are there already (expert_config::early).
  std::vector<expert_rows> route(const kernels::tensor& normed, const mixture_weights& mixture);
  void add_chosen(const kernels::tensor& to, const kernels::tensor& normed, const mixture_weights& mixture,
                  std::span<const expert_rows> chosen);
  void add_shared(const kernels::tensor& to, const kernels::tensor& normed, const mixture_weights& mixture,
                  kernels::store how);

  /// The chosen experts' part of `mix` where weights multiply inputs; `normed` has the rows in f32.
  void add_weighed(const kernels::tensor& to, const layer_weights& layer, const kernels::tensor& residual,
                   std::span<const expert_rows> chosen);

  /// to += what experts give, through the buffer `ffn`; `up` and `down` are groups of the same rows of `normed`.
  void add_experts(const kernels::tensor& to, const kernels::tensor& normed, std::span<const kernels::row_group> up,
                   std::span<const kernels::row_group> down, const kernels::activation& act, kernels::store how);

  /// Brings the head's matrix into memory, if it is not there yet.
  void enter_head();

  void begin(std::size_t rows);
  void check(const kernels::batch& who, const kernels::kv_cache& cache) const;

  std::shared_ptr<const model_weights> weights_;
  kernels::backend& backend_;
  weight_walk walk_; // through weights that are in a file
  int max_rows_;
  int max_context_;
  // See activation_sizes.
  rotation rope_, local_rope_, unrotated_, index_rope_;
  kernels::buffer residual_, normed_, qkv_, attended_, ffn_, branch_, router_, weighed_, inputs_, ones_;
  kernels::buffer latent_down_, latent_queries_, latents_, latent_inputs_;
  kernels::buffer index_, index_weights_, spread_;
  kernels::buffer recurrent_in_, convolved_, recurred_, recurrent_rates_, recurrent_low_;
  kernels::buffer streams_, predictions_, routed_, laurel_, laurel_down_, laurel_low_, gates_;
  kernels::gaussian_gates* gaussian_ = nullptr;      // the backend's, if the model needs them
  kernels::recurrent_ops* recurrence_ = nullptr;     // likewise
  kernels::sparse_attention* sparse_ = nullptr;      // likewise
  kernels::low_rank_products* low_rank_ = nullptr;   // the backend's, if it has them
  std::unique_ptr<kernels::state_cache> own_states_; // of batches that bring none
  kernels::buffer slopes_;                           // of ALiBi, [heads]
  std::size_t rows_ = 0;                             // of the step at hand
  std::vector<float> growth_;                        // of the step's queries, less 1; or empty
  added_products* added_ = nullptr;                  // likewise, or null
  kernels::position_choice chosen_;                  // of the last layer with an indexer
};

} // namespace troupe
