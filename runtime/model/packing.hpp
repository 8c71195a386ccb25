// Says which matrices a model packs together, and how. The loading of weights, memory estimates and the packed cache
// read it, so that all three agree.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/packed/packed_layout.hpp"
#include "runtime/model/precision.hpp"
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

packed_group qkv_group(const tensor_names& names, int layer, precision precision);
packed_group o_group(const tensor_names& names, int layer, precision precision);
packed_group latent_q_group(const tensor_names& names, int layer, precision precision);

/// Matrices of one head. They are small, and so are int8 at least if weights are quantised.
packed_group latent_key_group(const tensor_names& names, int layer, int head, precision precision);
packed_group latent_value_group(const tensor_names& names, int layer, int head, precision precision);

// Indexers, in int8 at least if weights are quantised; the heads' weights are not.
packed_group index_q_group(const tensor_names& names, int layer, precision precision);
packed_group index_key_group(const tensor_names& names, int layer, precision precision);
packed_group index_weights_group(const tensor_names& names, int layer);

// What layers get of each token beside the residual.
packed_group layer_projection_group(const tensor_names& names, precision precision);
packed_group input_gate_group(const tensor_names& names, int layer, precision precision);
packed_group input_projection_group(const tensor_names& names, int layer, precision precision);

// Alternating updates. The router is not quantised, the others are in int8 at least if weights are.
packed_group altup_in_group(const tensor_names& names, int stream, precision precision);
packed_group altup_out_group(const tensor_names& names, int stream, precision precision);
packed_group altup_router_group(const tensor_names& names, int layer);
packed_group laurel_down_group(const tensor_names& names, int layer, precision precision);
packed_group laurel_up_group(const tensor_names& names, int layer, precision precision);

// Matrices of a recurrent layer, in int8 at least if weights are quantised.
packed_group recurrent_in_group(const tensor_names& names, int layer, precision precision);
packed_group recurrent_rate_group(const tensor_names& names, int layer, precision precision);
packed_group recurrent_gate_group(const tensor_names& names, int layer, precision precision);
packed_group recurrent_parts_group(const tensor_names& names, int layer, precision precision);
packed_group recurrent_out_group(const tensor_names& names, int layer, precision precision);

packed_group gate_up_group(const tensor_names& names, int layer, precision precision);
packed_group down_group(const tensor_names& names, int layer, precision precision);

// Matrices of a mixture of experts. The router and the shared expert's gate are not quantised: they are small, and
// choose.
packed_group router_group(const tensor_names& names, int layer);
packed_group expert_gate_up_group(const tensor_names& names, int layer, int expert, precision precision);
packed_group expert_down_group(const tensor_names& names, int layer, int expert, precision precision);
packed_group shared_gate_up_group(const tensor_names& names, int layer, precision precision);
packed_group shared_down_group(const tensor_names& names, int layer, precision precision);
packed_group shared_gate_group(const tensor_names& names, int layer);

/// In int8 at least if weights are quantised.
packed_group head_group(const tensor_names& names, precision precision);

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
