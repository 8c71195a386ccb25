// Checkpoints made of other ones: with FP8 matrices in layers, as rows of codes, and with what has blocks expanded.
#pragma once

#include "kernels/formats/quantise_groups.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "tests/runtime/checkpoint/memory_checkpoint.hpp"

#include <cstring>
#include <map>

namespace troupe::test {

/// Another checkpoint's tensors, some of them in another type.
class retyped_view : public checkpoint {
public:
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
    return converted(std::string(tensor), presented_weights(from_, std::string(tensor)));
  }

protected:
  explicit retyped_view(const checkpoint& from) : from_(from) {}

  void retype(const std::string& tensor, tensor_type type) {
    auto info = *from_.find(tensor);
    info.type = type;
    info.bytes = info.shape[0] * row_bytes(*weight_format_of(type), info.shape[1]);
    infos_.emplace(tensor, info);
  }

private:
  virtual tensor_data converted(const std::string& tensor, std::vector<float> weights) const = 0;

  const checkpoint& from_;
  std::map<std::string, tensor_info, std::less<>> infos_;
};

/// Matrices of layers have one scale per output, except down_proj, which has one for all.
class fp8_view final : public retyped_view {
public:
  explicit fp8_view(const checkpoint& from) : retyped_view(from) {
    for (const auto& name : from.tensors())
      if (is_layer_matrix(name))
        retype(name, tensor_type::fp8);
  }

  static bool has_one_scale(std::string_view tensor) { return tensor.find("down_proj") != tensor.npos; }
  bool is_layer_matrix(std::string_view tensor) const {
    return tensor.find(".layers.") != tensor.npos && find(tensor)->shape.size() == 2;
  }

private:
  tensor_data converted(const std::string& tensor, std::vector<float> weights) const override {
    const auto& info = *find(tensor);
    const auto rows = info.shape[0], cols = info.shape[1];
    const float common = kernels::fp8_scale(weights.data(), weights.size());
    std::shared_ptr<std::byte[]> to(new std::byte[info.bytes]);
    for (std::size_t r = 0; r < rows; ++r) {
      auto* row = to.get() + r * (sizeof(float) + cols);
      const float scale = has_one_scale(tensor) ? common : kernels::fp8_scale(&weights[r * cols], cols);
      std::memcpy(row, &scale, sizeof scale);
      for (std::size_t k = 0; k < cols; ++k)
        row[sizeof scale + k] = std::byte(kernels::to_fp8(weights[r * cols + k], scale));
    }
    return to;
  }
};

/// Matrices whose elements share scales, in f32.
class expanded_view final : public retyped_view {
public:
  explicit expanded_view(const checkpoint& from) : retyped_view(from) {
    for (const auto& name : from.tensors())
      if (const auto& info = *from.find(name); info.shape.size() == 2 && has_blocks(info.type))
        retype(name, tensor_type::f32);
  }

private:
  tensor_data converted(const std::string& /*tensor*/, std::vector<float> weights) const override {
    const auto kept = std::make_shared<std::vector<float>>(std::move(weights));
    return {kept, kept->data()};
  }
};

} // namespace troupe::test
