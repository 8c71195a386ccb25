#include "runtime/checkpoint/quantised/torchao_checkpoint.hpp"

#include "runtime/checkpoint/quantised/made_checkpoint.hpp"

namespace troupe {

namespace {

constexpr std::string_view qdata_suffix = "._weight_qdata";

struct torchao_parts {
  std::string stem, codes, scale, zero;

  explicit torchao_parts(const std::string& qdata)
    : stem(qdata.substr(0, qdata.size() - qdata_suffix.size())),
      codes(qdata),
      scale(stem + "._weight_scale"),
      zero(stem + "._weight_zero_point") {}
};

/// Zero points: integers, or floats.
std::vector<float> zero_values(const checkpoint& stored, const torchao_parts& parts, std::size_t count) {
  if (!stored.find(parts.zero))
    return std::vector<float>(count);
  const auto& info = require_part(
    stored, parts.codes, parts.zero,
    {tensor_type::i8, tensor_type::i32, tensor_type::i64, tensor_type::f32, tensor_type::bf16, tensor_type::f16});
  require_shape(stored, parts.codes, parts.zero, info, stored.find(parts.scale)->shape);
  if (weight_format_of(info.type))
    return float_values(stored, parts.zero);
  const auto data = stored.read(parts.zero);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (info.type == tensor_type::i8) {
      values[i] = static_cast<const std::int8_t*>(data.get())[i];
    } else if (info.type == tensor_type::i32) {
      values[i] = static_cast<float>(static_cast<const std::int32_t*>(data.get())[i]);
    } else {
      values[i] = static_cast<float>(static_cast<const std::int64_t*>(data.get())[i]);
    }
  }
  return values;
}

/// Two codes of 4 bits in a byte, the first in the low half. Scales [groups, outputs], and offsets of the same shape.
void add_int4(made_checkpoint& to, const torchao_parts& parts, std::size_t groups) {
  const auto& stored = to.stored();
  const auto& codes = *stored.find(parts.codes);
  const auto outputs = codes.shape[0], inputs = 2 * codes.shape[1];
  const auto scales = float_values(stored, parts.scale), zeros = zero_values(stored, parts, scales.size());
  std::vector<code_line> lines(outputs * groups);
  for (std::size_t o = 0; o < outputs; ++o)
    for (std::size_t g = 0; g < groups; ++g)
      lines[o * groups + g] = {scales[g * outputs + o], zeros[g * outputs + o]};
  const coded_shape shape{outputs, inputs, inputs / groups, 4, true};
  const auto info = coded_info(shape, lines);
  const auto name = parts.codes;
  to.add(parts.stem + ".weight", info, {parts.codes, parts.scale, parts.zero},
         [&stored, name, info, shape, lines]() -> tensor_data {
           const auto data = stored.read(name);
           const auto* bytes = static_cast<const std::uint8_t*>(data.get());
           return coded_rows_of(info, shape, lines, [&](std::size_t o, std::size_t i) {
             const int code = bytes[(o * shape.inputs + i) / 2] >> i % 2 * 4 & 15;
             return code < 8 ? code : code - 16;
           });
         });
}

/// A code in each byte. Scales [outputs, groups]; zeros are codes.
void add_bytes(made_checkpoint& to, const torchao_parts& parts, std::size_t groups, bool shared) {
  const auto& stored = to.stored();
  const auto& codes = *stored.find(parts.codes);
  const auto outputs = codes.shape[0], inputs = codes.shape[1];
  const auto scales = float_values(stored, parts.scale), zeros = zero_values(stored, parts, scales.size());
  coded_shape shape{outputs, inputs, inputs / groups, 8, true};
  std::vector<code_line> lines(outputs * groups);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto from = shared ? 0 : i;
    lines[i] = {scales[from], -scales[from] * zeros[from]};
  }
  const auto data = stored.read(parts.codes);
  const auto* bytes = static_cast<const std::int8_t*>(data.get());
  if (std::all_of(bytes, bytes + outputs * inputs, [](std::int8_t c) { return c >= -8 && c < 8; }))
    shape.bits = 4; // what was meant for few bits, and not packed
  const auto info = coded_info(shape, lines);
  std::vector<std::string> used{parts.codes, parts.scale};
  if (stored.find(parts.zero))
    used.push_back(parts.zero);
  const auto name = parts.codes;
  to.add(parts.stem + ".weight", info, used, [&stored, name, info, shape, lines]() -> tensor_data {
    const auto data = stored.read(name);
    const auto* bytes = static_cast<const std::int8_t*>(data.get());
    return coded_rows_of(info, shape, lines,
                         [&](std::size_t o, std::size_t i) { return int(bytes[o * shape.inputs + i]); });
  });
}

/// E4M3, with a scale for each output or for all.
void add_float8(made_checkpoint& to, const torchao_parts& parts, bool shared) {
  const auto& stored = to.stored();
  const auto& codes = *stored.find(parts.codes);
  const auto scales = float_values(stored, parts.scale);
  tensor_info info;
  info.type = tensor_type::fp8;
  info.shape = codes.shape;
  info.bytes = codes.shape[0] * kernels::row_bytes(kernels::weight_format::fp8, codes.shape[1]);
  const auto name = parts.codes;
  to.add(parts.stem + ".weight", info, {parts.codes, parts.scale},
         [&stored, name, info, scales, shared]() -> tensor_data {
           const auto data = stored.read(name);
           const auto inputs = info.shape[1], row = kernels::row_bytes(kernels::weight_format::fp8, inputs);
           std::shared_ptr<std::byte[]> rows(new std::byte[info.bytes]);
           for (std::size_t o = 0; o < info.shape[0]; ++o) {
             std::memcpy(rows.get() + o * row, &scales[shared ? 0 : o], sizeof(float));
             std::memcpy(rows.get() + o * row + sizeof(float), static_cast<const std::byte*>(data.get()) + o * inputs,
                         inputs);
           }
           return rows;
         });
}

void add_torchao(made_checkpoint& to, const std::string& qdata) {
  const auto& stored = to.stored();
  const torchao_parts parts(qdata);
  const auto& codes = *stored.find(qdata);
  if ((codes.type != tensor_type::i8 && codes.type != tensor_type::u8 && codes.type != tensor_type::f8_e4m3) ||
      codes.shape.size() != 2)
    refuse_part(stored, qdata, qdata,
                "is " + std::string(to_string(codes.type)) + " " + to_string(codes.shape) +
                  ", a layout of torchao's for one device; supported are plain int8, int4 and float8",
                errc::unsupported);
  require_matrix(stored, qdata, qdata, codes);
  const auto& scale = require_part(stored, qdata, parts.scale, {tensor_type::f32, tensor_type::bf16, tensor_type::f16});
  const auto outputs = codes.shape[0], columns = codes.shape[1];
  const auto& s = scale.shape;
  for (const char* other : {"._weight_act_pre_scale", "._weight_act_quant_scale"})
    if (stored.find(parts.stem + other))
      refuse_part(stored, qdata, parts.stem + other, "is there: scales of activations are not supported",
                  errc::unsupported);
  const bool shared = s.empty() || (scale.bytes == size_of(scale.type));
  const bool by_output = (s.size() == 1 && s[0] == outputs) || (s.size() == 2 && s[0] == outputs && s[1] == 1);
  const auto divides = [](std::size_t groups, std::size_t inputs) { return groups > 0 && inputs % groups == 0; };
  if (codes.type == tensor_type::f8_e4m3) {
    if (!shared && !by_output)
      refuse_part(stored, qdata, parts.scale,
                  "has the shape " + to_string(s) + ", expected one scale or " + std::to_string(outputs));
    return add_float8(to, parts, shared);
  }
  // Packed codes have their scales the other way round, and always offsets, which are floats.
  const auto* zero = stored.find(parts.zero);
  const bool packed = s.size() == 2 && s[1] == outputs && zero && weight_format_of(zero->type).has_value() &&
    divides(s[0], 2 * columns);
  if (packed && (s[0] != outputs || !divides(s[1], columns)))
    return add_int4(to, parts, s[0]);
  if (shared || by_output)
    return add_bytes(to, parts, 1, shared);
  if (s.size() == 2 && s[0] == outputs && divides(s[1], columns) && !packed)
    return add_bytes(to, parts, s[1], false);
  refuse_part(stored, qdata, parts.scale,
              "has the shape " + to_string(s) + ", which are no scales of codes of the shape " +
                to_string(codes.shape));
}

} // namespace

std::unique_ptr<const checkpoint> open_torchao(std::unique_ptr<const checkpoint> stored) {
  auto result = std::make_unique<made_checkpoint>(std::move(stored));
  for (const auto& name : result->stored().tensors())
    if (name.ends_with(qdata_suffix))
      add_torchao(*result, name);
  return result;
}

} // namespace troupe
