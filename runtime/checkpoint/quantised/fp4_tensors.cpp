#include "runtime/checkpoint/quantised/fp4_tensors.hpp"

#include "kernels/formats/e4m3.hpp"
#include "runtime/checkpoint/quantised/fp8_checkpoint.hpp"

namespace troupe {

namespace {

constexpr std::size_t nv_group = 16, mx_group = 32;

/// The value of an E2M1 code: half of what the table has.
float fp4_value(int code) { return (static_cast<float>(kernels::mx4_table[code]) - 128) / 2; }

/// Checks codes and scales; returns what the matrix is presented as.
tensor_info info_of_fp4(const checkpoint& stored, const std::string& codes, const std::string& scales,
                        std::size_t group, std::initializer_list<tensor_type> scale_types, tensor_type type) {
  const auto& found = *stored.find(codes);
  require_matrix(stored, codes, codes, found);
  const auto outputs = found.shape[0], inputs = 2 * found.shape[1];
  const auto& of_groups = require_part(stored, codes, scales, scale_types);
  if (inputs % group != 0)
    refuse_part(stored, codes, codes,
                "has the shape " + to_string(found.shape) + ", expected rows of whole groups of " +
                  std::to_string(group) + " codes");
  require_shape(stored, codes, scales, of_groups, {outputs, inputs / group});
  tensor_info info;
  info.shape = {outputs, inputs};
  info.type = type;
  info.bytes = outputs * kernels::row_bytes(*weight_format_of(type), inputs);
  return info;
}

} // namespace

void add_nvfp4(made_checkpoint& to, const std::string& weight, const nvfp4_parts& parts) {
  const auto& stored = to.stored();
  const auto info = info_of_fp4(stored, parts.codes, parts.scales, nv_group, {tensor_type::f8_e4m3}, tensor_type::f16);
  const auto& of_matrix = require_part(stored, parts.codes, parts.whole, {tensor_type::f32});
  const float whole = of_matrix.bytes == sizeof(float) ? float_values(stored, parts.whole)[0] : 0;
  if (!(std::abs(whole) > 0) || std::isinf(whole))
    refuse_part(stored, parts.codes, parts.whole, "is no scale");
  to.add(weight, info, {parts.codes, parts.scales, parts.whole}, [&stored, parts, info, whole]() -> tensor_data {
    const auto data = stored.read(parts.codes), scales = stored.read(parts.scales);
    const auto* bytes = static_cast<const std::uint8_t*>(data.get());
    const auto count = info.shape[0] * info.shape[1];
    std::shared_ptr<std::uint16_t[]> rows(new std::uint16_t[count]);
    for (std::size_t i = 0; i < count; ++i) {
      const float of_group = kernels::from_e4m3(static_cast<const std::uint8_t*>(scales.get())[i / nv_group]),
                  scale = parts.divides ? of_group / whole : of_group * whole;
      rows[i] = kernels::to_f16(fp4_value(bytes[i / 2] >> i % 2 * 4 & 15) * scale);
    }
    return rows;
  });
}

void add_mxfp4(made_checkpoint& to, const std::string& weight, const std::string& codes, const std::string& scales) {
  const auto& stored = to.stored();
  const auto info = info_of_fp4(stored, codes, scales, mx_group, {tensor_type::u8, tensor_type::f8_e8m0},
                                tensor_type::mxfp4);
  to.add(weight, info, {codes, scales}, [&stored, codes, scales, info]() -> tensor_data {
    const auto data = stored.read(codes), exponents = stored.read(scales);
    const auto* bytes = static_cast<const std::uint8_t*>(data.get());
    const std::span of_groups(static_cast<const std::uint8_t*>(exponents.get()),
                              info.shape[0] * info.shape[1] / mx_group);
    require_powers(stored, codes, scales, of_groups);
    std::shared_ptr<std::uint8_t[]> rows(new std::uint8_t[info.bytes]);
    auto* place = rows.get();
    for (const auto exponent : of_groups) {
      *place++ = exponent;
      const auto code = [&](std::size_t i) { return bytes[i / 2] >> i % 2 * 4 & 15; };
      for (std::size_t i = 0; i < mx_group / 2; ++i)
        *place++ = static_cast<std::uint8_t>(code(i) | code(i + mx_group / 2) << 4);
      bytes += mx_group / 2;
    }
    return rows;
  });
}

std::unique_ptr<const checkpoint> open_fp4_experts(std::unique_ptr<const checkpoint> stored) {
  auto to = std::make_unique<made_checkpoint>(std::move(stored));
  for (const auto& name : to->stored().tensors())
    if (name.ends_with(".weight") && to->stored().find(name)->type == tensor_type::i8)
      add_mxfp4(*to, name, name, scale_of_codes(to->stored(), name));
  return to;
}

} // namespace troupe
