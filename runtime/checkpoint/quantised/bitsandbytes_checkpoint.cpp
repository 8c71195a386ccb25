#include "runtime/checkpoint/quantised/bitsandbytes_checkpoint.hpp"

#include "kernels/formats/bf16.hpp"
#include "runtime/checkpoint/quantised/made_checkpoint.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/json/json_reader.hpp"

namespace troupe {

namespace {

constexpr std::string_view state_marker = ".quant_state.bitsandbytes__", int8_suffix = ".SCB";
constexpr std::size_t most_state_bytes = 1 << 16, quant_map_codes = 16, nested_codes = 256;

/// What `quant_state` says of a matrix with 4-bit codes.
struct four_bit_state {
  std::size_t outputs = 0, inputs = 0, block = 64;
  std::size_t nested_block = 0; // 0: scales are floats
  float nested_offset = 0;
  tensor_type type = tensor_type::bf16;

  std::size_t weights() const { return outputs * inputs; }
  std::size_t blocks() const { return (weights() + block - 1) / block; }
};

four_bit_state parse_state(const checkpoint& stored, const std::string& name) {
  const auto& info = require_part(stored, name, name, {tensor_type::u8});
  if (info.bytes == 0 || info.bytes > most_state_bytes)
    refuse_part(stored, name, name, "has " + std::to_string(info.bytes) + " bytes, expected a short JSON text");
  const auto data = stored.read(name);
  const auto document = json::document::parse({static_cast<const char*>(data.get()), info.bytes},
                                              stored.where(name) + ": " + shown(name));
  const json::reader in(document);
  four_bit_state state;
  constexpr int most = 1 << 30;
  const auto sizes = in.integers("shape", 1, most);
  if (!sizes || sizes->size() != 2)
    refuse_part(stored, name, name, "does not say the `shape` of a matrix");
  state.outputs = static_cast<std::size_t>(sizes->at(0));
  state.inputs = static_cast<std::size_t>(sizes->at(1));
  state.block = static_cast<std::size_t>(in.integer("blocksize", 1, most, 64));
  state.nested_block = static_cast<std::size_t>(in.integer("nested_blocksize", 0, most, 0));
  state.nested_offset = static_cast<float>(in.number("nested_offset", -1e30, 1e30).value_or(0));
  const auto type = in.string("dtype").value_or("bfloat16");
  if (type != "bfloat16" && type != "float16" && type != "float32")
    refuse_part(stored, name, name, "has the `dtype` " + shown(type) + ", expected bfloat16, float16 or float32",
                errc::unsupported);
  state.type = type == "bfloat16" ? tensor_type::bf16 : type == "float16" ? tensor_type::f16 : tensor_type::f32;
  return state;
}

/// The scale of each block.
std::vector<float> block_scales(const checkpoint& stored, const std::string& weight, const four_bit_state& state) {
  const auto absmax = weight + ".absmax";
  if (state.nested_block == 0)
    return float_values(stored, absmax);
  const auto scales = float_values(stored, weight + ".nested_absmax"),
             map = float_values(stored, weight + ".nested_quant_map");
  const auto codes = stored.read(absmax);
  std::vector<float> result(state.blocks());
  for (std::size_t b = 0; b < result.size(); ++b)
    result[b] = map[static_cast<const std::uint8_t*>(codes.get())[b]] * scales[b / state.nested_block] +
      state.nested_offset;
  return result;
}

void add_four_bits(made_checkpoint& to, const std::string& state_name) {
  const auto& stored = to.stored();
  const auto weight = state_name.substr(0, state_name.find(state_marker));
  const auto kind = state_name.substr(weight.size() + state_marker.size());
  if (kind != "nf4" && kind != "fp4")
    refuse_part(stored, state_name, state_name, "says codes of the kind " + shown(kind) + ", expected nf4 or fp4",
                errc::unsupported);
  const auto state = parse_state(stored, state_name);
  const auto absmax = weight + ".absmax", map = weight + ".quant_map";
  // Codes are bytes whatever they were stored as (`bnb_4bit_quant_storage`).
  const auto& codes = require_part(stored, state_name, weight,
                                   {tensor_type::u8, tensor_type::bf16, tensor_type::f16, tensor_type::f32});
  if (codes.bytes != (state.weights() + 1) / 2)
    refuse_part(stored, state_name, weight,
                "has " + std::to_string(codes.bytes) + " bytes of codes, expected " +
                  std::to_string((state.weights() + 1) / 2) + " for the shape " +
                  to_string(std::vector<std::size_t>{state.outputs, state.inputs}));
  require_shape(stored, state_name, map, require_part(stored, state_name, map, {tensor_type::f32}), {quant_map_codes});
  std::vector<std::string> parts{weight, state_name, absmax, map};
  if (state.nested_block > 0) {
    require_shape(stored, state_name, absmax, require_part(stored, state_name, absmax, {tensor_type::u8}),
                  {state.blocks()});
    const auto scales = weight + ".nested_absmax", nested_map = weight + ".nested_quant_map";
    require_shape(stored, state_name, nested_map, require_part(stored, state_name, nested_map, {tensor_type::f32}),
                  {nested_codes});
    require_shape(stored, state_name, scales, require_part(stored, state_name, scales, {tensor_type::f32}),
                  {(state.blocks() + state.nested_block - 1) / state.nested_block});
    parts.insert(parts.end(), {scales, nested_map});
  } else {
    require_shape(stored, state_name, absmax, require_part(stored, state_name, absmax, {tensor_type::f32}),
                  {state.blocks()});
  }
  tensor_info info;
  info.type = state.type;
  info.shape = {state.outputs, state.inputs};
  info.bytes = state.weights() * size_of(state.type);
  to.add(weight, info, parts, [&stored, weight, map, state, info]() -> tensor_data {
    const auto codes = stored.read(weight);
    const auto levels = float_values(stored, map), scales = block_scales(stored, weight, state);
    std::shared_ptr<std::byte[]> rows(new std::byte[info.bytes]);
    const auto size = size_of(state.type);
    for (std::size_t i = 0; i < state.weights(); ++i) {
      const auto byte = static_cast<const std::uint8_t*>(codes.get())[i / 2];
      const float value = levels[i % 2 == 0 ? byte >> 4 : byte & 15] * scales[i / state.block]; // the first is above
      if (state.type == tensor_type::f32) {
        std::memcpy(rows.get() + i * size, &value, size);
        continue;
      }
      const auto half = state.type == tensor_type::f16 ? kernels::to_f16(value) : kernels::to_bf16(value);
      std::memcpy(rows.get() + i * size, &half, size);
    }
    return rows;
  });
}

void add_int8(made_checkpoint& to, const std::string& scale_name) {
  const auto& stored = to.stored();
  const auto stem = scale_name.substr(0, scale_name.size() - int8_suffix.size()), weight = stem + ".weight";
  const auto& codes = require_part(stored, scale_name, weight, {tensor_type::i8});
  require_matrix(stored, scale_name, weight, codes);
  require_shape(stored, scale_name, scale_name, require_part(stored, scale_name, scale_name, {tensor_type::f32}),
                {codes.shape[0]});
  std::vector<code_line> lines;
  for (const float largest : float_values(stored, scale_name))
    lines.push_back({largest / 127});
  const coded_shape shape{codes.shape[0], codes.shape[1], codes.shape[1], 8};
  const auto info = coded_info(shape, lines);
  const auto width = codes.shape[1];
  to.add(weight, info, {weight, scale_name}, [&stored, weight, info, shape, lines, width]() -> tensor_data {
    const auto stored_codes = stored.read(weight);
    const auto* bytes = static_cast<const std::int8_t*>(stored_codes.get());
    return coded_rows_of(info, shape, lines, [&](std::size_t o, std::size_t i) { return int(bytes[o * width + i]); });
  });
  to.hide(stem + ".weight_format"); // how rows were laid out for a GPU; saved ones are always plain
}

} // namespace

std::unique_ptr<const checkpoint> open_bitsandbytes(std::unique_ptr<const checkpoint> stored) {
  auto result = std::make_unique<made_checkpoint>(std::move(stored));
  for (const auto& name : result->stored().tensors()) {
    if (name.find(state_marker) != name.npos)
      add_four_bits(*result, name);
    else if (name.ends_with(int8_suffix))
      add_int8(*result, name);
  }
  return result;
}

} // namespace troupe
