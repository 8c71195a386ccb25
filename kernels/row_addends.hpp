// What a backend may add to single rows of an MLP's first product, between the sums and the activation: low-rank
// adapters need it. An interface beside `backend`, which backends may implement as well.
#pragma once

#include "kernels/ops.hpp"

namespace troupe::kernels {

class row_addends {
public:
  virtual ~row_addends() = default;

  /// backend::linear_activated with something added to rows: `addends` [out.rows] points to f32 [outputs] in device
  /// memory, if gated [2 * outputs], gate's first, or is null for rows that get nothing, whose bits are those of
  /// linear_activated.
  virtual void linear_activated_plus(const tensor& out, const tensor& in, const matrix& w, const activation& act,
                                     bool gated, const float* bias, const float* const* addends) = 0;
};

} // namespace troupe::kernels
