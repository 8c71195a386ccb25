// Checkpoints whose matrices are stored in several tensors each, in whatever way, and presented as rows in a format
// that is multiplied. Those who know a way of storing fill one of these. Used by one thread, as checkpoints are.
#pragma once

#include "kernels/formats/f16.hpp"
#include "kernels/formats/weight_groups.hpp"
#include "runtime/checkpoint/rewritten_checkpoint.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A matrix that is made of others when it is read.
class made_matrix {
public:
  made_matrix(tensor_info info, std::function<tensor_data()> make, std::string first)
    : info_(std::move(info)), make_(std::move(make)), first_(std::move(first)) {}

  const tensor_info& info() const { return info_; }
  tensor_data unpack() const { return make_(); }
  const std::string& first_part() const { return first_; }

private:
  tensor_info info_;
  std::function<tensor_data()> make_;
  std::string first_;
};

class made_checkpoint final : public rewritten_checkpoint<made_matrix> {
public:
  explicit made_checkpoint(std::unique_ptr<const checkpoint> stored) : rewritten_checkpoint(std::move(stored)) {}

  const checkpoint& stored() const { return *stored_; }

  /// `parts`: the stored tensors that it is made of, the first of which says where it is. Throws failure(bad_file) if a
  /// tensor of that name is stored beside them and is none of them.
  void add(const std::string& name, tensor_info info, const std::vector<std::string>& parts,
           std::function<tensor_data()> make) {
    if (stored_->find(name) && std::ranges::find(parts, name) == parts.end())
      throw failure(errc::bad_file,
                    stored_->where(parts.front()) + ": tensor " + shown(name) + " is there beside " +
                      shown(parts.front()));
    hidden_.insert(parts.begin(), parts.end());
    matrices_.try_emplace(name, std::move(info), std::move(make), parts.front());
  }

  /// A tensor that says nothing that is needed.
  void hide(const std::string& name) { hidden_.insert(name); }

  std::vector<std::string> tensors() const override {
    std::vector<std::string> names;
    for (const auto& name : stored_->tensors())
      if (!hidden_.contains(name))
        names.push_back(name);
    append_names(names, matrices_);
    std::ranges::sort(names);
    return names;
  }

  std::string where(std::string_view tensor) const override {
    const auto found = matrices_.find(tensor);
    return stored_->where(found == matrices_.end() ? tensor : std::string_view(found->second.first_part()));
  }

private:
  std::set<std::string> hidden_;
};

[[noreturn]] inline void refuse_part(const checkpoint& stored, const std::string& anchor, const std::string& part,
                                     const std::string& what, errc code = errc::bad_file) {
  throw failure(code, stored.where(anchor) + ": tensor " + shown(part) + " " + what);
}

/// A part of one of some types. Throws failure(bad_file) that names `anchor`'s file and the part.
inline const tensor_info& require_part(const checkpoint& stored, const std::string& anchor, const std::string& part,
                                       std::initializer_list<tensor_type> types) {
  const auto* found = stored.find(part);
  if (!found)
    refuse_part(stored, anchor, part, "is missing");
  if (std::ranges::find(types, found->type) != types.end())
    return *found;
  std::string expected;
  for (const auto& type : types)
    expected += (expected.empty() ? "" : " or ") + std::string(to_string(type));
  refuse_part(stored, anchor, part,
              "is " + std::string(to_string(found->type)) + " " + to_string(found->shape) + ", expected " + expected);
}

inline void require_shape(const checkpoint& stored, const std::string& anchor, const std::string& part,
                          const tensor_info& info, const std::vector<std::size_t>& shape) {
  if (info.shape != shape)
    refuse_part(stored, anchor, part, "has the shape " + to_string(info.shape) + ", expected " + to_string(shape));
}

/// A matrix: two dimensions, not empty, of fewer than 2^40 elements.
inline void require_matrix(const checkpoint& stored, const std::string& anchor, const std::string& part,
                           const tensor_info& info) {
  constexpr std::size_t most = std::size_t(1) << 40;
  const auto& s = info.shape;
  if (s.size() != 2 || s[0] == 0 || s[1] == 0 || s[0] > most || s[1] > most / s[0])
    refuse_part(stored, anchor, part, "has the shape " + to_string(s) + ", expected a matrix");
}

/// Some of a tensor's powers of two (E8M0): 255 stands for none, and whatever is multiplied with it is no number.
inline void require_powers(const checkpoint& stored, const std::string& anchor, const std::string& part,
                           std::span<const std::uint8_t> exponents) {
  if (std::ranges::find(exponents, 255) != exponents.end())
    refuse_part(stored, anchor, part, "has an exponent of 255, which is no number");
}

/// All elements of a float tensor.
inline std::vector<float> float_values(const checkpoint& stored, const std::string& part) {
  const auto& info = *stored.find(part);
  std::size_t count = 1;
  for (const auto size : info.shape)
    count *= size;
  std::vector<float> values(count);
  to_floats(*weight_format_of(info.type), stored.read(part).get(), count, values.data());
  return values;
}

/// The code of `bits` that begins at bit `at` of words that are `stride` apart; it may end in the next of them.
inline int packed_code(const void* words, std::size_t first, std::size_t stride, std::size_t at, std::size_t bits) {
  constexpr std::size_t word_bits = 32;
  const auto word = [&](std::size_t index) {
    std::uint32_t value = 0;
    std::memcpy(&value, static_cast<const char*>(words) + (first + index * stride) * sizeof value, sizeof value);
    return value;
  };
  auto value = word(at / word_bits) >> at % word_bits;
  if (at % word_bits + bits > word_bits)
    value |= word(at / word_bits + 1) << (word_bits - at % word_bits);
  return static_cast<int>(value & ((1u << bits) - 1));
}

/// A row-major matrix of integer codes, of which each `group` inputs of an output share a scale and an offset.
struct coded_shape {
  std::size_t outputs = 0, inputs = 0, group = 0;
  int bits = 4;         // codes from -2^(bits - 1) on; 1 to 8
  bool offsets = false; // there may be offsets other than 0
};

/// weight = scale * code + offset
struct code_line {
  float scale = 0, offset = 0;
};

/// What such a matrix is presented in: blocks that hold it exactly where their f16 scales can, with an offset rounded
/// to f16; else floats. `lines` [outputs, groups].
inline tensor_info coded_info(const coded_shape& shape, const std::vector<code_line>& lines) {
  constexpr float least = 0x1p-14f, most = 65504 / 128.0f;
  const bool in_f16 = std::ranges::all_of(lines, [](const code_line& l) {
    const float s = std::abs(l.scale);
    return (s == 0 || (s >= least && s <= most)) && std::abs(l.offset) <= 65504;
  });
  const bool offsets = shape.offsets && std::ranges::any_of(lines, [](const code_line& l) { return l.offset != 0; });
  const bool blocks = in_f16 && shape.inputs % kernels::group_inputs == 0 &&
    (shape.group % kernels::group_inputs == 0 || shape.group == shape.inputs);
  const bool wide = shape.bits > 4;
  tensor_info info;
  info.type = !in_f16              ? tensor_type::f32
    : !blocks || (wide && offsets) ? tensor_type::f16
    : wide                         ? tensor_type::q8_0
    : offsets                      ? tensor_type::q4_1
                                   : tensor_type::q4_0;
  info.shape = {shape.outputs, shape.inputs};
  info.bytes = shape.outputs * kernels::row_bytes(*weight_format_of(info.type), shape.inputs);
  return info;
}

inline void put_half(std::uint8_t*& place, std::uint16_t half) {
  *place++ = static_cast<std::uint8_t>(half & 0xff);
  *place++ = static_cast<std::uint8_t>(half >> 8);
}

/// f16 or f32.
inline void put_float(std::uint8_t*& place, tensor_type type, float weight) {
  if (type == tensor_type::f16)
    return put_half(place, kernels::to_f16(weight));
  std::memcpy(place, &weight, sizeof weight);
  place += sizeof weight;
}

/// The rows of such a matrix. `code(output, input)` is an int. (GCC 12 fails on names of tensor_type in templates.)
template <class Code>
tensor_data coded_rows_of(const tensor_info& info, const coded_shape& shape, const std::vector<code_line>& lines,
                          const Code& code) {
  const auto groups = (shape.inputs + shape.group - 1) / shape.group;
  std::shared_ptr<std::byte[]> to(new std::byte[info.bytes]);
  auto* place = reinterpret_cast<std::uint8_t*>(to.get());
  const std::size_t block = kernels::group_inputs;
  for (std::size_t o = 0; o < shape.outputs; ++o) {
    if (!has_blocks(info.type)) {
      for (std::size_t i = 0; i < shape.inputs; ++i) {
        const auto& line = lines[o * groups + i / shape.group];
        put_float(place, info.type, line.scale * static_cast<float>(code(o, i)) + line.offset);
      }
      continue;
    }
    for (std::size_t first = 0; first < shape.inputs; first += block) {
      const auto& line = lines[o * groups + first / shape.group];
      put_float(place, kernels::weight_format::f16, line.scale);
      if (info.type == kernels::weight_format::q8_0) {
        for (std::size_t i = 0; i < block; ++i)
          *place++ = static_cast<std::uint8_t>(code(o, first + i));
        continue;
      }
      if (info.type == kernels::weight_format::q4_1)
        put_float(place, kernels::weight_format::f16, line.offset - 8 * line.scale);
      for (std::size_t i = 0; i < block / 2; ++i)
        *place++ = static_cast<std::uint8_t>((code(o, first + i) + 8) | (code(o, first + i + block / 2) + 8) << 4);
    }
  }
  return to;
}

} // namespace troupe
