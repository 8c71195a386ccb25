#include "runtime/checkpoint/quantised/modelopt_checkpoint.hpp"

#include "runtime/checkpoint/quantised/fp4_tensors.hpp"
#include "runtime/checkpoint/quantised/made_checkpoint.hpp"

namespace troupe {

std::unique_ptr<const checkpoint> open_modelopt(std::unique_ptr<const checkpoint> stored) {
  auto result = std::make_unique<made_checkpoint>(std::move(stored));
  const auto& tensors = result->stored();
  for (const auto& name : tensors.tensors()) {
    if (name.ends_with(".pre_quant_scale"))
      refuse_part(tensors, name, name, "scales inputs ahead of a product, which is not supported", errc::unsupported);
    if (name.ends_with(".input_scale"))
      result->hide(name);
    if (!name.ends_with(".weight") || tensors.find(name)->type != tensor_type::u8)
      continue;
    const auto scales = name + "_scale", whole = name + "_scale_2";
    if (!tensors.find(scales))
      refuse_part(tensors, name, scales, "is missing");
    add_nvfp4(*result, name, {name, scales, whole});
  }
  return result;
}

} // namespace troupe
