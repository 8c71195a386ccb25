// Whether a product is faster without the weights that only zeros would multiply, as its own measurements say: what is
// left is read in pieces, which takes longer for a byte than whole matrices do, and rows of a batch share fewer zeros the
// more there are. A plain class; bits depend on no answer.
#pragma once

#include <array>
#include <cstddef>

namespace troupe::kernels {

class skip_cost {
public:
  /// Whether to skip, for a product of `rows` rows of which `share` of the weights is left. Now and then the other way is
  /// tried, if it is not far worse, so that the costs stay known.
  bool skips(std::size_t rows, double share);

  /// What a product took, for a byte of all of its weights.
  void measured(std::size_t rows, double share, bool skipped, double seconds_per_byte);

  /// The share of weights up to which skipping pays.
  double limit(std::size_t rows) const;

private:
  /// Of products of about as many rows: 1, 2, 3 and 4, 5 to 8, and so on.
  struct known {
    double whole = 0;   // seconds for a byte; 0: unknown
    double skipped = 0; // and for a byte that is left
    unsigned asked = 0;
  };
  static std::size_t class_of(std::size_t rows);

  std::array<known, 16> classes_;
};

} // namespace troupe::kernels
