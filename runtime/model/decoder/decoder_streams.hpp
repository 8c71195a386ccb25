// The part of a decoder for layers with alternating updates (https://arxiv.org/abs/2301.13310), which Gemma 3n has. There
// are several streams; each layer predicts all of them, computes one, and corrects the others by the difference.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/decoder/decoder_attention.hpp"
#include "runtime/model/decoder/decoder_inputs.hpp"
#include "runtime/model/decoder/decoder_mlp.hpp"
#include "runtime/model/decoder/decoder_step.hpp"
#include "runtime/techniques/layer_hook.hpp"

#include <cstddef>
#include <vector>

namespace troupe {

class decoder_streams {
public:
  /// Borrows the step.
  decoder_streams(decoder_step& step);

  /// All layers, from the residual to the residual.
  void run(const kernels::batch& who, kernels::kv_cache& cache, const layer_hook& hook, decoder_inputs& inputs,
           decoder_attention& attention, decoder_mlps& mlps);

private:
  /// Stream `index` of the step's rows, f32.
  kernels::tensor stream(const kernels::buffer& of, int index) const;

  /// Factors by which the rows of `from` get the lengths of those of `to`.
  std::vector<float> lengths_to(const kernels::tensor& from, const kernels::tensor& to);

  /// The other streams, of the residual; and the residual, of all.
  void spread();
  void merge();

  /// The coefficients of all rows, for each of `outputs` coefficients in turn.
  std::vector<float> coefficients(const altup_weights& w, const kernels::tensor& of, const std::vector<float>& by,
                                  std::size_t outputs);
  void predict(const altup_weights& w);

  /// Corrects the streams by what the layer computed, which is in the residual.
  void correct(const altup_weights& w);

  /// Leaves in `laurel_` what is added beside attention.
  void make_laurel(const layer_weights& layer, const kernels::tensor& normed);

  /// Adds what layer `i` makes of its own input of each token to the streams that it does not compute.
  void add_inputs(int i, const kernels::tensor& normed, decoder_inputs& inputs);

  decoder_step& step_;
  kernels::backend& backend_;
  kernels::gaussian_gates& gaussian_;
  kernels::buffer streams_, predictions_, routed_, laurel_, laurel_down_, laurel_low_; // see activation_sizes
};

} // namespace troupe
