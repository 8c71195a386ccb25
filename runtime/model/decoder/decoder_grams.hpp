// The part of a decoder that looks up tables of n-grams (gram_config), and adds what it finds to the residual streams. The
// tokens before a step's rows, and the last inputs of the convolutions, are part of the sequences' states.
#pragma once

#include "kernels/gram_ops.hpp"
#include "runtime/model/decoder/decoder_step.hpp"
#include "runtime/support/types.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class decoder_grams {
public:
  /// Borrows the step.
  decoder_grams(decoder_step& step);

  /// The tokens of the step that comes.
  void take(std::span<const token_id> tokens) { tokens_.assign(tokens.begin(), tokens.end()); }

  /// Finds the tokens before the step's rows, once its states have begun. Throws failure(internal) if it has no tokens.
  void begin(kernels::state_cache& states);

  /// streams += what layer `i` makes of its n-grams; f32 [rows, streams * hidden].
  void add(int i, const kernels::tensor& streams);

private:
  /// What the rows look up, f32 [rows, width].
  kernels::tensor look_up(int i);

  decoder_step& step_;
  kernels::backend& backend_;
  kernels::gram_ops& grams_;
  kernels::buffer found_, narrow_, keys_, queries_, values_, taken_; // see activation_sizes
  std::vector<token_id> tokens_;
  std::vector<std::int32_t> before_; // [rows, size - 1]
  kernels::state_cache* states_ = nullptr;
};

} // namespace troupe
