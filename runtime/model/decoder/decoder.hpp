// The decoder graph, written once for all families and configured by data. It borrows weights, and is used by the
// thread that uses its backend.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/decoder/decoder_attention.hpp"
#include "runtime/model/decoder/decoder_blocks.hpp"
#include "runtime/model/decoder/decoder_convolutions.hpp"
#include "runtime/model/decoder/decoder_grams.hpp"
#include "runtime/model/decoder/decoder_hyper.hpp"
#include "runtime/model/decoder/decoder_inputs.hpp"
#include "runtime/model/decoder/decoder_mlp.hpp"
#include "runtime/model/decoder/decoder_positions.hpp"
#include "runtime/model/decoder/decoder_states.hpp"
#include "runtime/model/decoder/decoder_step.hpp"
#include "runtime/model/decoder/decoder_streams.hpp"
#include "runtime/model/decoder/weights.hpp"
#include "runtime/support/types.hpp"
#include "runtime/techniques/layer_hook.hpp"
#include "runtime/techniques/products.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace troupe {

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

  void embed(std::span<const token_id> tokens, const kernels::batch& who) {
    inputs_.embed(tokens, who);
    know(tokens);
  }

  /// The tokens of the rows that were received, of which layers with tables of n-grams must know.
  void know(std::span<const token_id> tokens) {
    if (grams_)
      grams_->take(tokens);
  }

  /// Copies what the span before passed on: f32 [rows, model_config::residual_width()], in device memory.
  void receive(const kernels::tensor& rows);

  /// Where so many rows belong, f32 [rows, residual_width()], for a caller who copies them there before `run`.
  kernels::tensor receive(std::size_t rows);

  /// The span's layers. `cache` has them alone.
  void run(const kernels::batch& who, kernels::kv_cache& cache, const layer_hook& hook = {},
           added_products* added = nullptr);

  /// What the step's rows pass on to the span behind, f32 [rows, residual_width()]: their residual streams, and what else
  /// later layers read; of a part with a head, what that reads, f32 [rows, hidden]. Valid until the next step.
  kernels::tensor residual() const {
    const bool is_last = step_.config().part().heads;
    return is_last ? step_.residual() : hyper_ ? hyper_->streams() : blocks_ ? blocks_->passed() : step_.residual();
  }

  void conclude(std::span<const std::int32_t> logit_rows, const kernels::tensor& logits,
                std::span<const std::int32_t> hidden_rows = {}, const kernels::tensor& hidden = {});

  /// The output head alone: logits, f32 [rows, vocab], of what the final norm, or another layer, gives, [rows, hidden]
  /// in the compute type. The model's logit scale and cap are part of it.
  void project(const kernels::tensor& logits, const kernels::tensor& states);

  const model_weights& weights() const { return *step_.weights; }
  int max_rows() const { return step_.max_rows(); }
  int max_context() const { return step_.max_context(); }

private:
  void check(const kernels::batch& who, const kernels::kv_cache& cache) const;

  decoder_step step_;
  decoder_positions positions_;
  decoder_inputs inputs_;
  decoder_attention attention_;
  decoder_mlps mlps_;
  std::optional<decoder_states> states_;             // if the model has recurrent layers
  std::optional<decoder_grams> grams_;               // if layers have tables of n-grams
  std::optional<decoder_streams> streams_;           // if layers compute one of several
  std::optional<decoder_hyper> hyper_;               // if what they read is mixed of several
  std::optional<decoder_blocks> blocks_;             // if layers share some
  std::optional<decoder_convolutions> convolutions_; // if some are beside attention and MLPs
};

} // namespace troupe
