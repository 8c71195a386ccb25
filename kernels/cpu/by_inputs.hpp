// Zeros among quantised activations: which inputs of each group of 32 some row needs, for weights that are kept by
// inputs. An input counts as zero if its code is, so that integer sums are the same without it. Used by the backend's
// thread.
#pragma once

#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/target.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::kernels {

/// What a batch of rows has in common.
struct batch_zeros {
  double of_row = 0; // mean share of a row's inputs that are zero
  double of_all = 0; // share of the inputs that are zero in all rows
};

class kept_inputs {
public:
  /// Looks at arranged rows (linear_op::activations). False if a row has numbers that are not finite: nothing is skipped.
  bool look(const linear_op& op, const quantised_layout& layout);

  const batch_zeros& zeros() const { return zeros_; }

  /// The share of the weights' bytes that is read.
  double share() const { return share_; }

  /// Lets the op skip the others.
  void apply(linear_op& op);

private:
  std::vector<kept_group> groups_;
  scratch<std::uint32_t> places_, activations_;
  std::vector<std::uint32_t> masks_; // of each group
  batch_zeros zeros_;
  double share_ = 1;
  int parts_ = 1;
};

} // namespace troupe::kernels
