// What a backend may do with activations that are zero. It can skip the weights that only zeros would multiply, which
// changes no result, and count what that saves. It can also turn small activations into zeros, which does change
// results. An optional interface of backends, beside `backend`.
#pragma once

#include "kernels/ops.hpp"

namespace troupe::kernels {

class activation_sparsity {
public:
  virtual ~activation_sparsity() = default;

  /// Whether products with w skip weights by words, as below: not those whose inputs are quantised in groups.
  virtual bool skips_zeros(const matrix& w) const = 0;

  /// x, f32 or bf16, is the input of a product with w. In each row, of the words that such a product could skip (an
  /// input, or two neighbours, whose magnitude is the larger one's) the `share` with the smallest magnitudes becomes 0.
  /// Magnitudes are compared as bf16, rounded down, and those equal to the smallest that stays stay: a function of the
  /// row and the kind of w alone. Throws std::invalid_argument unless w skips zeros and 0 <= share < 1.
  virtual void drop_smallest(const tensor& x, float share, const matrix& w) = 0;

  /// Bytes of weights that products have skipped so far.
  virtual std::size_t skipped_bytes() const = 0;

  /// Bytes of V that attention has not read so far: no query had a weight for them (attention_scores::threshold).
  virtual std::size_t unread_values() const = 0;
};

} // namespace troupe::kernels
