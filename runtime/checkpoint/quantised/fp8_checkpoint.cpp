#include "runtime/checkpoint/quantised/fp8_checkpoint.hpp"

#include "kernels/formats/bf16.hpp"
#include "kernels/formats/e4m3.hpp"
#include "runtime/checkpoint/quantised/made_checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace troupe {

namespace {

constexpr std::string_view suffix = ".weight";
constexpr std::array<std::string_view, 5> parts{".weight_scale", ".weight_scale_inv", ".scale", ".input_scale",
                                                ".activation_scale"};

/// A matrix with its scales. The constructor checks both.
class fp8_matrix {
public:
  fp8_matrix(const checkpoint& stored, const std::string& weight, std::array<std::size_t, 2> block)
    : stored_(stored), weight_(weight), scale_(scale_of_codes(stored, weight)) {
    const auto& codes = *stored.find(weight);
    if (codes.shape.size() != 2 || codes.shape[0] == 0 || codes.shape[1] == 0)
      fail(weight, "has the shape " + to_string(codes.shape) + ", expected a matrix");
    const auto* scales = stored.find(scale_);
    if (!scales)
      fail(scale_, "is missing");
    if (scales->type != tensor_type::f32 && scales->type != tensor_type::bf16 && scales->type != tensor_type::f16 &&
        !powers_of_two(*scales))
      fail(scale_, "is " + std::string(to_string(scales->type)) + ", expected F32, BF16, F16, F8_E8M0 or U8");
    read_grid(codes.shape, scales->shape, block);
    wide_ = codes.type == tensor_type::f8_e5m2;
    info_.type = type_for(codes.shape[1]);
    info_.shape = codes.shape;
    info_.bytes = codes.shape[0] * kernels::row_bytes(*weight_format_of(info_.type), codes.shape[1]);
  }

  const tensor_info& info() const { return info_; }

  tensor_data unpack() const {
    const auto codes = stored_.read(weight_);
    const auto outputs = info_.shape[0], inputs = info_.shape[1], columns = (inputs + block_[1] - 1) / block_[1];
    std::vector<float> scales((outputs + block_[0] - 1) / block_[0] * columns);
    read_scales(scales);
    std::shared_ptr<std::byte[]> to(new std::byte[info_.bytes]);
    auto* row = to.get();
    const auto* code = static_cast<const std::uint8_t*>(codes.get());
    for (std::size_t r = 0; r < outputs; ++r, code += inputs) {
      const auto* scale = &scales[r / block_[0] * columns];
      const auto format = *weight_format_of(info_.type);
      if (is_fp8(info_.type)) {
        const auto shared = has_scale_blocks(format) ? kernels::traits_of(format).scale_inputs : inputs;
        for (std::size_t i = 0; i < inputs; i += shared) {
          std::memcpy(row + fp8_scale_offset(format, i), &scale[i / block_[1]], sizeof(float));
          std::memcpy(row + fp8_offset(format, i), code + i, std::min(shared, inputs - i));
        }
      } else {
        for (std::size_t i = 0; i < inputs; ++i) {
          const auto half = kernels::to_bf16(value_of(code[i]) * scale[i / block_[1]]);
          std::memcpy(row + i * sizeof half, &half, sizeof half);
        }
      }
      row += kernels::row_bytes(format, inputs);
    }
    return to;
  }

private:
  [[noreturn]] void fail(const std::string& tensor, const std::string& what) const {
    refuse_part(stored_, weight_, tensor, what);
  }

  /// The format whose blocks divide those of the scales. bf16 if there is none: the values are rounded to it.
  tensor_type type_for(std::size_t inputs) const {
    using kernels::weight_format;
    if (wide_)
      return tensor_type::bf16;
    if (block_[1] >= inputs)
      return tensor_type::fp8;
    for (const auto format : {weight_format::fp8_128, weight_format::fp8_32})
      if (block_[1] % kernels::traits_of(format).scale_inputs == 0)
        return format;
    return tensor_type::bf16;
  }

  /// Whether scales are exponents alone, as those of MXFP8, and of DeepSeek since V3.1.
  static bool powers_of_two(const tensor_info& scales) {
    return scales.type == tensor_type::f8_e8m0 || scales.type == tensor_type::u8;
  }

  void read_scales(std::vector<float>& to) const {
    const auto& info = *stored_.find(scale_);
    const auto data = stored_.read(scale_);
    if (!powers_of_two(info))
      return to_floats(*weight_format_of(info.type), data.get(), to.size(), to.data());
    constexpr int bias = 127;
    const std::span exponents(static_cast<const std::uint8_t*>(data.get()), to.size());
    require_powers(stored_, weight_, scale_, exponents);
    std::ranges::transform(exponents, to.begin(),
                           [](std::uint8_t exponent) { return std::ldexp(1.0f, exponent - bias); });
  }

  /// Sets the outputs and inputs that share a scale.
  void read_grid(const std::vector<std::size_t>& codes, const std::vector<std::size_t>& scales,
                 std::array<std::size_t, 2> block) {
    const auto outputs = codes[0], inputs = codes[1];
    const bool one = std::ranges::all_of(scales, [](std::size_t size) { return size == 1; });
    const bool matrix = scales.size() == 2 && scales[0] >= 1 && scales[0] <= outputs && scales[1] >= 1 &&
      scales[1] <= inputs;
    const auto blocks = [](std::size_t size, std::size_t of) { return (size + of - 1) / of; };
    if (one && scales.size() <= 2)
      block_ = {outputs, inputs};
    else if (scales == std::vector{outputs} || scales == std::vector{outputs, std::size_t(1)})
      block_ = {1, inputs};
    else if (matrix && block[0] != 0 && blocks(outputs, block[0]) == scales[0] && blocks(inputs, block[1]) == scales[1])
      block_ = block;
    else if (matrix && scales[0] == outputs && inputs % scales[1] == 0)
      block_ = {1, inputs / scales[1]};
    else
      fail(scale_,
           "has the shape " + to_string(scales) + ", expected one scale, " +
             to_string(std::vector<std::size_t>{outputs, 1}) + " or one for each block" +
             (block[0] == 0 ? "" : " of " + std::to_string(block[0]) + " x " + std::to_string(block[1])));
  }

  /// E5M2 is the upper half of f16.
  float value_of(std::uint8_t code) const {
    return wide_ ? kernels::from_f16(static_cast<std::uint16_t>(code << 8)) : kernels::from_e4m3(code);
  }

  const checkpoint& stored_;
  std::string weight_, scale_;
  std::array<std::size_t, 2> block_{};
  bool wide_ = false; // E5M2
  tensor_info info_;
};

class fp8_checkpoint final : public rewritten_checkpoint<fp8_matrix> {
public:
  fp8_checkpoint(std::unique_ptr<const checkpoint> stored, std::array<std::size_t, 2> block)
    : rewritten_checkpoint(std::move(stored)) {
    for (const auto& name : stored_->tensors())
      if (const auto type = stored_->find(name)->type;
          name.ends_with(suffix) && (type == tensor_type::f8_e4m3 || type == tensor_type::f8_e5m2))
        matrices_.try_emplace(name, *stored_, name, block);
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

std::string scale_of_codes(const checkpoint& stored, const std::string& weight) {
  const auto usual = weight + "_scale";
  for (const auto& other : {usual + "_inv", // DeepSeek's; it is multiplied with, too
                            weight.substr(0, weight.size() - suffix.size()) + ".scale"}) // of DeepSeek V4
    if (!stored.find(usual) && stored.find(other))
      return other;
  return usual;
}

std::unique_ptr<const checkpoint> open_fp8(std::unique_ptr<const checkpoint> stored, std::array<std::size_t, 2> block) {
  return std::make_unique<fp8_checkpoint>(std::move(stored), block);
}

} // namespace troupe
