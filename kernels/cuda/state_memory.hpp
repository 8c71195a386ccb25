// The states of recurrent layers in device memory: [slot][layer][tail | matrices], in a slot behind its layers the tails of
// spread convolutions, and what is pending: [running slot][layer][inputs | rows of each head], likewise. Owned by the
// runner; steps and copies change it in the order of one stream.
#pragma once

#include "kernels/cuda/device/recurrent/recurrent.hpp"

#include <vector>

namespace troupe::kernels::cuda {

class device_state_cache final : public state_cache {
public:
  /// Throws std::invalid_argument for a shape that the kernels do not take.
  explicit device_state_cache(const state_shape& wanted);

  layer_states layer(int index) const;
  /// Of state_shape::spread; without matrices.
  layer_states spread(int index) const;

  /// In order. A slot is one piece of memory.
  void copy(const stream& on, std::span<const state_copy> copies);
  void copy_out(const stream& on, std::span<const state_export> out) const;
  void copy_in(const stream& on, std::span<const state_import> in);

private:
  buffer states_, logs_;
};

/// The words that kernels read as state_runs: one run for each sequence of the step that `of` has begun, then others
/// that do nothing, up to `count`, then saves.
std::vector<std::uint32_t> words_of_runs(const state_cache& of, std::size_t count);

} // namespace troupe::kernels::cuda
