// The part of a decoder that computes MLPs, and mixtures of experts in their place.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/decoder/decoder_step.hpp"
#include "runtime/model/decoder/weights.hpp"

#include <span>
#include <vector>

namespace troupe::kernels {
class activation_sparsity; // kernels/activation_sparsity.hpp
class gaussian_gates;      // kernels/gaussian_gates.hpp
} // namespace troupe::kernels

namespace troupe {

class decoder_mlps {
public:
  /// Borrows the step.
  decoder_mlps(decoder_step& step);

  /// residual += the MLP of layer `i`, which reads `normed`, and may overwrite it.
  void add(int i, const kernels::tensor& normed);

  /// Scores experts ahead of the layer, for a model whose router reads what the layer reads (expert_config::early).
  void score_experts(const kernels::tensor& in, const mixture_weights& mixture);

private:
  /// out = gates of layer `i` that count, times up.
  void gate_gaussian(int i, const kernels::tensor& out, const kernels::tensor& normed);

  /// Makes zeros of a share of the inputs of an MLP's product, if the model is to be approximated so.
  void drop_smallest(const kernels::tensor& in, float share, const kernels::matrix& w);

  /// to = the sum of the experts' results, each row's in the order of the experts.
  void mix(const kernels::tensor& to, const kernels::tensor& normed, const layer_weights& layer);

  /// Mixes where router, experts and shared expert have norms of their own; overwrites `normed`.
  void mix_apart(const kernels::tensor& to, const kernels::tensor& normed, const mixture_weights& mixture);

  /// The experts of each row, by what they read, or by scores that are there already.
  std::vector<expert_rows> route(const kernels::tensor& normed, const mixture_weights& mixture);
  void add_chosen(const kernels::tensor& to, const kernels::tensor& normed, const mixture_weights& mixture,
                  std::span<const expert_rows> chosen);
  void add_shared(const kernels::tensor& to, const kernels::tensor& normed, const mixture_weights& mixture,
                  kernels::store how);

  /// to += what experts that give what they read add. `weights`: of each row.
  void add_nulls(const kernels::tensor& to, std::span<const float> weights, const layer_weights& layer);

  /// The chosen experts' part of `mix` where weights multiply inputs.
  void add_weighed(const kernels::tensor& to, const layer_weights& layer, std::span<const expert_rows> chosen);

  /// to += what experts give; `up` and `down` are groups of the same rows of `normed`.
  void add_experts(const kernels::tensor& to, const kernels::tensor& normed, std::span<const kernels::row_group> up,
                   std::span<const kernels::row_group> down, const kernels::activation& act, kernels::store how);

  decoder_step& step_;
  kernels::backend& backend_;
  kernels::buffer router_, weighed_, gates_, shortcut_; // see activation_sizes
  kernels::gaussian_gates* gaussian_ = nullptr;         // the backend's, if the model needs them
  kernels::activation_sparsity* sparsity_ = nullptr;    // likewise
};

} // namespace troupe
