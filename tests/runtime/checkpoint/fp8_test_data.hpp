// A checkpoint whose layers' matrices are in FP8, made of another one: as rows of codes, or as the numbers that these
// stand for.
#pragma once

#include "kernels/formats/quantise_groups.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/weight_values.hpp"

#include <cstring>
#include <map>

namespace troupe::test {

class fp8_view final : public checkpoint {
public:
  /// `expanded`: in f32. Each matrix has a scale for each output, or, those called down_proj, one for all.
  fp8_view(const checkpoint& from, bool expanded) : from_(from), expanded_(expanded) {
    for (const auto& name : from.tensors())
      if (auto info = *from.find(name); is_layer_matrix(name)) {
        info.type = expanded ? tensor_type::f32 : tensor_type::fp8;
        info.bytes = info.shape[0] * row_bytes(*weight_format_of(info.type), info.shape[1]);
        infos_.emplace(name, info);
      }
  }

  std::string name() const override { return from_.name(); }
  std::vector<std::string> tensors() const override { return from_.tensors(); }
  const tensor_info* find(std::string_view tensor) const override {
    const auto found = infos_.find(tensor);
    return found == infos_.end() ? from_.find(tensor) : &found->second;
  }
  std::string where(std::string_view tensor) const override { return from_.where(tensor); }

  tensor_data read(std::string_view tensor) const override {
    if (!infos_.contains(tensor))
      return from_.read(tensor);
    using kernels::weight_format;
    const auto stored = from_.read(tensor);
    const auto format = *weight_format_of(from_.find(tensor)->type);
    const auto& info = infos_.find(tensor)->second;
    const auto rows = info.shape[0], cols = info.shape[1];
    std::vector<float> weights(rows * cols);
    for (std::size_t r = 0; r < rows; ++r)
      to_floats(format, static_cast<const char*>(stored.get()) + r * row_bytes(format, cols), cols, &weights[r * cols]);
    const float common = kernels::fp8_scale(weights.data(), weights.size());
    std::shared_ptr<std::byte[]> to(new std::byte[info.bytes]);
    std::vector<std::byte> row(row_bytes(weight_format::fp8, cols));
    for (std::size_t r = 0; r < rows; ++r) {
      const float scale = has_one_scale(tensor) ? common : kernels::fp8_scale(&weights[r * cols], cols);
      std::memcpy(row.data(), &scale, sizeof scale);
      for (std::size_t k = 0; k < cols; ++k)
        row[sizeof scale + k] = std::byte(kernels::to_fp8(weights[r * cols + k], scale));
      if (expanded_)
        expand(weight_format::fp8, row.data(), 0, cols, reinterpret_cast<float*>(to.get()) + r * cols);
      else
        std::memcpy(to.get() + r * row.size(), row.data(), row.size());
    }
    return to;
  }

  static bool has_one_scale(std::string_view tensor) { return tensor.find("down_proj") != tensor.npos; }
  bool is_layer_matrix(std::string_view tensor) const {
    return tensor.find(".layers.") != tensor.npos && from_.find(tensor)->shape.size() == 2;
  }

private:
  const checkpoint& from_;
  bool expanded_;
  std::map<std::string, tensor_info, std::less<>> infos_;
};

} // namespace troupe::test
