// The layers behind the pooled state of a text. They turn it into another embedding, or into the scores of a
// classification (rerankers). They are a few products of one row each, in f32 on the host: cheap beside the model, and
// dependent on nothing else. Immutable; any thread.
#pragma once

#include "kernels/formats/activation.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/sampling/pooling.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A matrix [outputs, inputs] and what follows it.
struct pooled_layer {
  enum class activation : std::uint8_t { none, tanh, gelu, silu, relu };

  std::size_t outputs = 0, inputs = 0;
  std::vector<float> weight = {}; // row by row
  std::vector<float> bias = {};   // [outputs], or empty
  activation act = activation::none;
  std::vector<float> norm = {}, norm_bias = {}; // layer norm behind it: [outputs], or empty
  float norm_eps = 1e-5f;
};

/// How scores of labels become one between 0 and 1.
enum class score_scale : std::uint8_t { none, sigmoid };

class pooled_head {
public:
  /// `how`: of the states, before the first layer.
  pooled_head(pooling how, std::vector<pooled_layer> layers, score_scale scale = score_scale::none)
    : how_(how), layers_(std::move(layers)), scale_(scale) {}

  pooling how() const { return how_; }
  std::size_t outputs() const { return layers_.back().outputs; }
  const std::vector<pooled_layer>& layers() const { return layers_; }
  score_scale scale() const { return scale_; }

  /// What the last layer gives; scores are scaled if there is one label. Throws failure(internal) for another length.
  std::vector<float> operator()(std::span<const float> pooled) const;

private:
  pooling how_;
  std::vector<pooled_layer> layers_; // at least one
  score_scale scale_;
};

/// A layer of a checkpoint: `stem`.weight, and `stem`.bias if it is there. Throws failure(bad_file | unsupported)
/// naming what is missing or of another shape; `outputs` of 0: any.
pooled_layer read_pooled_layer(const checkpoint& tensors, const std::string& stem, std::size_t outputs,
                               std::size_t inputs);

/// Reads the norm behind a layer in the same way.
void read_pooled_norm(const checkpoint& tensors, const std::string& stem, float eps, pooled_layer& to);

} // namespace troupe
