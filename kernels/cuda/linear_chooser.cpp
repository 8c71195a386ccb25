#include "kernels/cuda/linear_chooser.hpp"

#include <bit>

namespace troupe::kernels::cuda {

std::size_t linear_chooser::bucket(std::size_t rows) { return std::bit_ceil(rows); }

linear_method linear_chooser::choose(const linear_shape& shape, std::size_t rows,
                                     const std::function<float(linear_method)>& measure) {
  if (rows <= always_flat)
    return linear_method::flat;
  if (rows >= always_library)
    return linear_method::library;
  const std::pair key{shape, bucket(rows)};
  const auto found = chosen_.find(key);
  if (found != chosen_.end())
    return found->second;
  const float flat = measure(linear_method::flat), library = measure(linear_method::library);
  const auto best = library < flat ? linear_method::library : linear_method::flat;
  chosen_.emplace(key, best);
  return best;
}

} // namespace troupe::kernels::cuda
