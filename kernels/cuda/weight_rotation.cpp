#include "kernels/cuda/weight_rotation.hpp"

#include <algorithm>

namespace troupe::kernels::cuda {

linear_shape shape_of(const weight_part& part) { return {part.kind, part.gated, part.outputs, part.inputs}; }

void weight_rotation::add(const device_matrix& matrix) {
  for (const auto& part : matrix.parts) {
    auto& same = parts_[shape_of(part)];
    std::erase_if(same, [](const known_part& k) { return k.codes.expired(); });
    if (same.size() == most)
      continue;
    known_part known{part, part.codes, part.scales, part.scales != nullptr};
    known.shape.codes = known.shape.scales = nullptr;
    same.push_back(std::move(known));
  }
}

std::vector<weight_part> weight_rotation::like(const weight_part& part, std::size_t bytes) {
  std::vector<weight_part> chosen{part};
  const std::size_t each = code_bytes(part) + scale_bytes(part);
  std::size_t held = each;
  const auto same = parts_.find(shape_of(part));
  if (same == parts_.end())
    return chosen;
  for (const auto& known : same->second) {
    if (held > bytes || chosen.size() == most)
      break;
    auto other = known.shape;
    other.codes = known.codes.lock();
    other.scales = known.scales.lock();
    if (!other.codes || other.codes == part.codes || (known.has_scales && !other.scales))
      continue;
    chosen.push_back(std::move(other));
    held += each;
  }
  return chosen;
}

} // namespace troupe::kernels::cuda
