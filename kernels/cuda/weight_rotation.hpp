// The matrices of a model by shape, so that a measurement can read several in turn, as the layers of a step do. One
// matrix that is read again and again would stay in the L2 cache and seem faster than it is in use. Plain; keeps no
// memory alive.
#pragma once

#include "kernels/cuda/linear_chooser.hpp"

#include <map>
#include <memory>
#include <vector>

namespace troupe::kernels::cuda {

linear_shape shape_of(const weight_part& part);

class weight_rotation {
public:
  /// The most parts that are read in turn.
  static constexpr std::size_t most = 64;

  void add(const device_matrix& matrix);

  /// `part` first, then others of its shape that still exist, until together they have more than `bytes`. Those of a
  /// model that fits stay in the L2 in use, too.
  std::vector<weight_part> like(const weight_part& part, std::size_t bytes);

private:
  struct known_part {
    weight_part shape; // without memory
    std::weak_ptr<void> codes, scales;
    bool has_scales = false;
  };
  std::map<linear_shape, std::vector<known_part>> parts_;
};

} // namespace troupe::kernels::cuda
