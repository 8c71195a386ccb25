// The part of a decoder that convolves keys and values, and what attention and MLPs give, with those of the rows before
// (branch_convolutions.hpp). Each is added to what it reads.
#pragma once

#include "kernels/gram_ops.hpp"
#include "runtime/model/branch_convolutions.hpp"
#include "runtime/model/decoder/decoder_step.hpp"

namespace troupe {

class decoder_convolutions final : public branch_change {
public:
  /// Borrows the step.
  explicit decoder_convolutions(decoder_step& step);

  /// Before the first layer: the states of the step that has begun.
  void begin(kernels::state_cache& states) { states_ = &states; }

  /// Changes K and V of layer `i`, f32, ahead of their norms.
  void change_cached(int i, const kernels::tensor& keys, const kernels::tensor& values);

  /// What layer `i` adds next is of its attention, or of its MLP.
  void enter(int i, branch_site site);

  kernels::tensor changed(const kernels::tensor& branch) override;

private:
  kernels::tensor convolve(int i, branch_site site, const kernels::tensor& in);

  decoder_step& step_;
  kernels::gram_ops& ops_;
  kernels::buffer convolved_; // see activation_sizes
  kernels::state_cache* states_ = nullptr;
  int layer_ = 0;
  branch_site site_ = branch_site::attention;
};

} // namespace troupe
