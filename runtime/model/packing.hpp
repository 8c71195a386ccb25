// Says which matrices a model packs together, and how. The loading of weights, memory estimates and the packed cache
// read it, so that all three agree.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/packed/packed_layout.hpp"
#include "runtime/model/gram_layers.hpp"
#include "runtime/model/precision.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/model/tensor_names.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace troupe {

/// Matrices that are packed as one, named after the first.
struct packed_group {
  std::vector<wanted_tensor> stacked;
  kernels::quantization how = kernels::quantization::none;
  bool gated = false;  // gate and up
  bool expert = false; // one of several that rows choose from
  int unit = 0;        // what a pass reads together: a layer of the part, or behind them the head
  int number = 0;      // of an expert

  const std::string& name() const { return stacked.front().name; }
};

/// The groups of a configuration, which must outlive it: how each matrix is packed.
class matrix_groups {
public:
  matrix_groups(const model_config& config, precision asked) : names_(config), asked_(asked) {}

  packed_group qkv(int layer) const { return {names_.qkv(layer), asked_.weights}; }
  packed_group o(int layer) const { return {names_.o(layer), asked_.weights}; }
  packed_group gate_up(int layer) const;
  packed_group down(int layer) const { return {names_.down(layer), asked_.weights}; }

  // The router and the shared expert's gate are not quantised: they are small, and choose.
  packed_group router(int layer) const { return {{names_.router(layer)}}; }
  packed_group expert_gate_up(int layer, int expert) const { return gated(names_.expert_gate_up(layer, expert)); }
  packed_group expert_down(int layer, int e) const { return {names_.expert_down(layer, e), asked_.weights}; }
  packed_group shared_gate_up(int layer) const { return gated(names_.shared_gate_up(layer)); }
  packed_group shared_down(int layer) const { return {names_.shared_down(layer), asked_.weights}; }
  packed_group shared_gate(int layer) const { return {{names_.shared_gate(layer)}}; }

  packed_group recurrent_in(int layer) const { return int8_at_least(recurrent(layer).in()); }
  packed_group recurrent_rate(int layer) const { return int8_at_least({recurrent(layer).rate_up()}); }
  packed_group recurrent_gate(int layer) const { return int8_at_least({recurrent(layer).gate_up()}); }
  packed_group recurrent_parts(int layer) const { return int8_at_least({recurrent(layer).parts()}); }
  packed_group recurrent_out(int layer) const { return {{recurrent(layer).out()}, asked_.weights}; }

  packed_group gram_key(int layer) const { return int8_at_least({grams(layer).key()}); }
  packed_group gram_value(int layer) const { return int8_at_least({grams(layer).value()}); }

  packed_group latent_q(int layer) const { return {{names_.latent_q(layer)}, asked_.weights}; }
  packed_group latent_key(int layer, int head) const { return int8_at_least({names_.latent_key(layer, head)}); }
  packed_group latent_value(int layer, int head) const { return int8_at_least({names_.latent_value(layer, head)}); }

  packed_group compressed_q(int layer) const { return {{names_.compressed_q(layer)}, asked_.weights}; }
  packed_group compressed_group(int layer, int g) const {
    return {{names_.compressed_group(layer, g)}, asked_.weights};
  }
  packed_group entries(int layer) const { return first_two(names_.entries(layer)); }
  packed_group index_entries(int layer) const { return first_two(names_.index_entries(layer)); }

  packed_group index_q(int layer) const { return int8_at_least({names_.index_q(layer)}); }
  packed_group index_key(int layer) const { return int8_at_least({names_.index_key(layer)}); }
  packed_group index_weights(int layer) const { return {{names_.index_weights(layer)}}; }

  packed_group block_output(int layer) const { return int8_at_least({names_.block_output(layer)}); }

  packed_group layer_projection() const { return int8_at_least({names_.layer_projection()}); }
  packed_group input_gate(int layer) const { return int8_at_least({names_.input_gate(layer)}); }
  packed_group input_projection(int layer) const { return int8_at_least({names_.input_projection(layer)}); }

  packed_group altup_in(int stream) const { return int8_at_least({names_.altup_in(stream)}); }
  packed_group altup_out(int stream) const { return int8_at_least({names_.altup_out(stream)}); }
  packed_group altup_router(int layer) const { return {{names_.altup_router(layer)}}; }
  packed_group laurel_down(int layer) const { return int8_at_least({names_.laurel(layer).front()}); }
  packed_group laurel_up(int layer) const { return int8_at_least({names_.laurel(layer).back()}); }

  /// What `hyper_attention`, `hyper_mlp` or `hyper_head` have of matrices: the small ones that weigh streams are not
  /// quantised.
  std::vector<packed_group> hyper(const std::vector<wanted_tensor>& of) const;

  packed_group head() const { return int8_at_least({names_.head()}); }

private:
  recurrent_tensors recurrent(int layer) const { return {names_.config(), layer}; }
  gram_tensors grams(int layer) const { return {names_.config(), layer}; }
  packed_group gated(std::vector<wanted_tensor> stacked) const; // gate and up, or up alone
  packed_group first_two(const std::vector<wanted_tensor>& of) const { return int8_at_least({of[0], of[1]}); }
  /// If weights are quantised: what is small, or feeds much.
  packed_group int8_at_least(std::vector<wanted_tensor> stacked) const;

  const tensor_names names_;
  const precision asked_;
};

/// All groups of a model or part; the head, if it has one, is the last.
std::vector<packed_group> packed_groups(const model_config& config, precision precision);

/// Whether the head's matrix, once packed, serves as the embedding table, too: see storable_matrices::gives_table.
bool head_gives_table(const checkpoint& tensors, const model_config& config, precision precision,
                      const kernels::backend& backend);

/// A wanted tensor as a stored matrix without data; a vector is one row. Throws as `require_tensor` does.
kernels::stored_matrix describe(const checkpoint& tensors, const wanted_tensor& wanted);
std::vector<kernels::stored_matrix> describe(const checkpoint& tensors, const packed_group& group);

/// Bytes of device memory.
std::size_t packed_bytes(const checkpoint& tensors, const packed_group& group, precision precision,
                         const kernels::backend& backend);

/// The matrices that `load_weights` packs, with their bytes, and the layout, for a packed_cache; the caller adds the
/// model's name and files. Only for backends that are storable.
packed_contents packed_contents_of(const checkpoint& tensors, const model_config& config, precision precision,
                                   const kernels::backend& backend);

/// A sentence on the matrices that `precision.weights` does not apply to; empty if there are none.
std::string unquantised_matrices(const checkpoint& tensors, const model_config& config, precision precision);

} // namespace troupe
