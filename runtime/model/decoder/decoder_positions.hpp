// How a decoder tells attention of positions: tables of rotations, slopes of ALiBi, and queries that grow.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/model_config.hpp"

#include <vector>

namespace troupe {

/// How the layers of a kind rotate, in a backend's memory.
struct rotation {
  kernels::buffer rows, longer; // see kernels::rope_rows
  int border = 0;

  kernels::rope_rows get() const {
    return {static_cast<const float*>(rows.get()), static_cast<const float*>(longer.get()), border};
  }
};
rotation upload_rotation(const rope_config& rope, int dim, int max_context, kernels::backend& backend);

class decoder_positions {
public:
  /// Throws failure(internal) for more positions than the model has learned.
  decoder_positions(const model_config& config, kernels::backend& backend, int max_context);

  /// Reads the positions of a step's rows.
  void begin(const kernels::batch& who);

  /// Without angles for a layer that does not rotate.
  kernels::rope_rows rotation_of(int layer) const;

  const float* slopes() const; // [heads], or null

  /// Makes a step's queries grow with their positions, if the model asks for it.
  void grow(int layer, const kernels::tensor& queries);

  /// The same by numbers of each head: `queries` are heads of `dim` columns.
  void grow_heads(const kernels::tensor& queries, std::size_t dim, std::span<const float> scale,
                  std::span<const float> bias);

private:
  const model_config& config_;
  kernels::backend& backend_;
  rotation rope_, local_rope_;
  kernels::buffer slopes_;
  std::vector<float> growth_, logarithms_; // of the step's queries, less 1; or empty
};

} // namespace troupe
