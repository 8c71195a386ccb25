#include "runtime/checkpoint/quantised/mxfp4_checkpoint.hpp"

#include "kernels/formats/bf16.hpp"
#include "runtime/checkpoint/quantised/made_checkpoint.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr std::string_view blocks_suffix = "_blocks", scales_suffix = "_scales";
constexpr std::size_t mx_inputs = 32, mx_bytes = 16;

/// One expert's matrix.
class mxfp4_matrix {
public:
  /// `base`: X. Its tensors have been checked.
  mxfp4_matrix(const checkpoint& stored, const std::string& base, std::size_t expert)
    : stored_(stored),
      blocks_(base + std::string(blocks_suffix)),
      scales_(base + std::string(scales_suffix)),
      expert_(expert) {
    const auto& shape = stored.find(blocks_)->shape;
    info_ = {tensor_type::bf16, {shape[1], shape[2] * mx_inputs}, shape[1] * shape[2] * mx_inputs * 2};
  }

  const tensor_info& info() const { return info_; }

  tensor_data unpack() const {
    constexpr float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const auto blocks = info_.shape[0] * info_.shape[1] / mx_inputs;
    const auto codes = stored_.read(blocks_), exponents = stored_.read(scales_);
    const auto* from = static_cast<const std::uint8_t*>(codes.get()) + expert_ * blocks * mx_bytes;
    const std::span scales(static_cast<const std::uint8_t*>(exponents.get()) + expert_ * blocks, blocks);
    require_powers(stored_, blocks_, scales_, scales);
    std::shared_ptr<std::uint16_t[]> to(new std::uint16_t[blocks * mx_inputs]);
    for (std::size_t i = 0; i < blocks; ++i) {
      const float factor = std::ldexp(1.0f, int{scales[i]} - 127);
      for (std::size_t k = 0; k < mx_bytes; ++k) {
        const auto pair = from[i * mx_bytes + k];
        to[i * mx_inputs + 2 * k] = kernels::to_bf16(values[pair & 15] * factor);
        to[i * mx_inputs + 2 * k + 1] = kernels::to_bf16(values[pair >> 4] * factor);
      }
    }
    return to;
  }

private:
  const checkpoint& stored_;
  std::string blocks_, scales_;
  std::size_t expert_;
  tensor_info info_;
};

class mxfp4_checkpoint final : public rewritten_checkpoint<mxfp4_matrix> {
public:
  explicit mxfp4_checkpoint(std::unique_ptr<const checkpoint> stored) : rewritten_checkpoint(std::move(stored)) {
    for (const auto& name : stored_->tensors()) {
      if (!name.ends_with(blocks_suffix))
        continue;
      const auto base = name.substr(0, name.size() - blocks_suffix.size());
      check(name, base + std::string(scales_suffix));
      for (std::size_t expert = 0; expert < stored_->find(name)->shape[0]; ++expert)
        matrices_.try_emplace(base + "." + std::to_string(expert), *stored_, base, expert);
      hidden_.push_back(name);
      hidden_.push_back(base + std::string(scales_suffix));
    }
    std::ranges::sort(hidden_);
  }

  std::vector<std::string> tensors() const override {
    auto names = stored_->tensors();
    std::erase_if(names, [&](const std::string& name) { return std::ranges::binary_search(hidden_, name); });
    append_names(names, matrices_);
    return names;
  }

  std::string where(std::string_view tensor) const override { return stored_->where(tensor); }

private:
  void check(const std::string& blocks, const std::string& scales) const {
    const auto& codes = require_part(*stored_, blocks, blocks, {tensor_type::u8});
    const auto& exponents = require_part(*stored_, blocks, scales, {tensor_type::u8});
    if (codes.shape.size() != 4 || codes.shape[3] != mx_bytes || codes.bytes == 0)
      refuse_part(*stored_, blocks, blocks,
                  "has the shape " + to_string(codes.shape) + ", expected [experts, rows, blocks, 16]");
    require_shape(*stored_, blocks, scales, exponents, {codes.shape.begin(), codes.shape.end() - 1});
  }

  std::vector<std::string> hidden_; // sorted
};

} // namespace

std::unique_ptr<const checkpoint> open_mxfp4(std::unique_ptr<const checkpoint> stored) {
  return std::make_unique<mxfp4_checkpoint>(std::move(stored));
}

} // namespace troupe
