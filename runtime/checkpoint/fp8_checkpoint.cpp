#include "runtime/checkpoint/fp8_checkpoint.hpp"

#include "runtime/checkpoint/rewritten_checkpoint.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

namespace troupe {

namespace {

constexpr std::string_view suffix = ".weight";
constexpr std::array<std::string_view, 2> parts{".weight_scale", ".input_scale"};

/// A matrix and its scales, checked.
class fp8_matrix {
public:
  fp8_matrix(const checkpoint& stored, const std::string& weight)
    : stored_(stored), weight_(weight), scale_(weight + "_scale") {
    const auto& codes = *stored.find(weight);
    if (codes.shape.size() != 2 || codes.shape[0] == 0 || codes.shape[1] == 0)
      fail(weight, "has the shape " + to_string(codes.shape) + ", expected a matrix");
    outputs_ = codes.shape[0];
    const auto* scales = stored.find(scale_);
    if (!scales)
      fail(scale_, "is missing");
    if (scales->type != tensor_type::f32 && scales->type != tensor_type::bf16 && scales->type != tensor_type::f16)
      fail(scale_, "is " + std::string(to_string(scales->type)) + ", expected F32, BF16 or F16");
    std::size_t count = 1;
    for (const auto size : scales->shape)
      count = size > outputs_ ? outputs_ + 1 : count * size; // more than there can be, without overflow
    if (scales->shape.size() > 2 || (count != 1 && (count != outputs_ || scales->shape[0] != outputs_)))
      fail(scale_,
           "has the shape " + to_string(scales->shape) + ", expected one scale or " +
             to_string(std::vector<std::size_t>{outputs_, 1}));
    one_scale_ = count == 1;
    info_.type = tensor_type::fp8;
    info_.shape = codes.shape;
    info_.bytes = outputs_ * kernels::row_bytes(kernels::weight_format::fp8, codes.shape[1]);
  }

  const tensor_info& info() const { return info_; }

  tensor_data unpack() const {
    const auto codes = stored_.read(weight_), stored_scales = stored_.read(scale_);
    std::vector<float> scales(one_scale_ ? 1 : outputs_);
    to_floats(*weight_format_of(stored_.find(scale_)->type), stored_scales.get(), scales.size(), scales.data());
    std::shared_ptr<std::byte[]> to(new std::byte[info_.bytes]);
    const auto inputs = info_.shape[1];
    for (std::size_t r = 0; r < outputs_; ++r) {
      auto* row = to.get() + r * kernels::row_bytes(kernels::weight_format::fp8, inputs);
      std::memcpy(row, &scales[one_scale_ ? 0 : r], sizeof(float));
      std::memcpy(row + sizeof(float), static_cast<const std::byte*>(codes.get()) + r * inputs, inputs);
    }
    return to;
  }

private:
  [[noreturn]] void fail(const std::string& tensor, const std::string& what) const {
    throw failure(errc::bad_file, stored_.where(weight_) + ": tensor " + shown(tensor) + " " + what);
  }

  const checkpoint& stored_;
  std::string weight_, scale_;
  std::size_t outputs_ = 0;
  bool one_scale_ = false;
  tensor_info info_;
};

class fp8_checkpoint final : public rewritten_checkpoint<fp8_matrix> {
public:
  explicit fp8_checkpoint(std::unique_ptr<const checkpoint> stored) : rewritten_checkpoint(std::move(stored)) {
    for (const auto& name : stored_->tensors())
      if (name.ends_with(suffix) && stored_->find(name)->type == tensor_type::f8_e4m3)
        matrices_.try_emplace(name, *stored_, name);
  }

  std::vector<std::string> tensors() const override {
    auto names = stored_->tensors();
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::any_of(parts, [&](std::string_view part) {
        return name.ends_with(part) &&
          matrices_.contains(name.substr(0, name.size() - part.size()) + std::string(suffix));
      });
    });
    return names;
  }

  std::string where(std::string_view tensor) const override { return stored_->where(tensor); }
};

} // namespace

std::unique_ptr<const checkpoint> open_fp8(std::unique_ptr<const checkpoint> stored) {
  return std::make_unique<fp8_checkpoint>(std::move(stored));
}

} // namespace troupe
