#include "runtime/checkpoint/quantised/compressed_checkpoint.hpp"

#include "runtime/checkpoint/quantised/fp4_tensors.hpp"
#include "runtime/checkpoint/quantised/made_checkpoint.hpp"
#include "runtime/checkpoint/quantised/pruned_tensors.hpp"

namespace troupe {

namespace {

constexpr std::string_view packed_suffix = ".weight_packed", scale_suffix = ".weight_scale";
constexpr std::size_t code_word_bits = 32;

bool any_float(const tensor_info& info) {
  return info.type == tensor_type::f32 || info.type == tensor_type::bf16 || info.type == tensor_type::f16;
}

/// Scales of outputs and groups: [outputs, groups], or one, or one per output.
struct stored_scales {
  std::vector<float> values;
  std::size_t groups = 1;
  bool shared = false; // one for all

  float of(std::size_t output, std::size_t group) const { return values[shared ? 0 : output * groups + group]; }
};

stored_scales read_scales(const checkpoint& stored, const std::string& anchor, const std::string& name,
                          std::size_t outputs, std::size_t inputs) {
  const auto* info = stored.find(name);
  if (!info)
    refuse_part(stored, anchor, name, "is missing");
  if (!any_float(*info))
    refuse_part(stored, anchor, name, "is " + std::string(to_string(info->type)) + ", expected F32, BF16 or F16");
  const auto& s = info->shape;
  stored_scales result;
  result.shared = s.empty() || (s.size() == 1 && s[0] == 1 && outputs != 1);
  const bool matrix = s.size() == 2 && s[0] == outputs && s[1] >= 1 && s[1] <= inputs && inputs % s[1] == 0;
  if (!result.shared && !matrix && s != std::vector<std::size_t>{outputs})
    refuse_part(stored, anchor, name,
                "has the shape " + to_string(s) + ", expected " + std::to_string(outputs) +
                  " rows of scales for groups that divide " + std::to_string(inputs) + " inputs");
  result.groups = matrix ? s[1] : 1;
  result.values = float_values(stored, name);
  return result;
}

/// How codes lie in 32-bit words.
struct code_layout {
  std::size_t bits = 0;
  bool dense = false; // one after another, across words; else as many whole ones as a word holds

  std::size_t per_word() const { return code_word_bits / bits; }
  std::size_t words(std::size_t codes) const {
    return dense ? (codes * bits + code_word_bits - 1) / code_word_bits : (codes + per_word() - 1) / per_word();
  }
  /// A code, which are signed, of those in every `stride`th word from `first` on.
  int code(const void* words, std::size_t first, std::size_t stride, std::size_t index) const {
    const auto at = dense ? index * bits : index / per_word() * code_word_bits + index % per_word() * bits;
    return packed_code(words, first, stride, at, bits) - (1 << (bits - 1));
  }
};

/// The layout in which rows of `inputs` codes take `columns` words. Where a word holds no whole number of codes, older
/// versions of compressed-tensors leave bits unused, and newer ones write codes across words.
code_layout layout_of(const checkpoint& stored, const std::string& packed, std::size_t inputs, std::size_t columns,
                      const std::vector<int>& code_bits) {
  std::vector<code_layout> possible;
  std::string listed;
  for (const int bits : code_bits) {
    listed += (listed.empty() ? "" : " or ") + std::to_string(bits);
    for (const bool dense : {true, false}) {
      const code_layout layout{static_cast<std::size_t>(bits), dense};
      const bool same = !dense && (code_word_bits % layout.bits == 0 || inputs * layout.bits <= code_word_bits);
      if (!same && layout.words(inputs) == columns)
        possible.push_back(layout);
    }
  }
  if (possible.size() == 1)
    return possible.front();
  const auto& shape = stored.find(packed)->shape;
  refuse_part(stored, packed, packed,
              "has the shape " + to_string(shape) + ", which " +
                (possible.empty() ? "holds no " : "may hold several ") + "rows of " + std::to_string(inputs) +
                " codes of " + listed + " bits",
              errc::unsupported);
}

void add_packed_integers(made_checkpoint& to, const std::string& packed, const std::vector<int>& code_bits) {
  const auto& stored = to.stored();
  const auto stem = packed.substr(0, packed.size() - packed_suffix.size());
  const auto shape_name = stem + ".weight_shape", scale_name = stem + std::string(scale_suffix),
             zero_name = stem + ".weight_zero_point", order_name = stem + ".weight_g_idx";
  const auto sizes = stored_shape(stored, packed, shape_name);
  const auto outputs = sizes[0], inputs = sizes[1];
  const auto& words = require_part(stored, packed, packed, {tensor_type::i32});
  if (words.shape.size() != 2 || words.shape[0] != outputs || words.shape[1] == 0 || words.shape[1] > inputs)
    refuse_part(stored, packed, packed,
                "has the shape " + to_string(words.shape) + ", which is none of " + to_string(sizes) + " packed");
  const auto columns = words.shape[1];
  const auto layout = layout_of(stored, packed, inputs, columns, code_bits);
  const auto groups = read_scales(stored, packed, scale_name, outputs, inputs).groups;
  std::vector<std::string> parts{packed, shape_name, scale_name};
  coded_shape shape{outputs, inputs, inputs / groups, static_cast<int>(layout.bits)};
  if (stored.find(zero_name)) { // packed along the outputs
    require_shape(stored, packed, zero_name, require_part(stored, packed, zero_name, {tensor_type::i32}),
                  {layout.words(outputs), groups});
    shape.offsets = true;
    parts.push_back(zero_name);
  }
  // Read again with the codes: over all matrices, lines take as much memory as the scales of the model.
  const auto read_lines = [&stored, packed, scale_name, zero_name, layout, shape] {
    const auto scales = read_scales(stored, packed, scale_name, shape.outputs, shape.inputs);
    const auto zeros = shape.offsets ? stored.read(zero_name) : tensor_data{};
    std::vector<code_line> lines(shape.outputs * scales.groups);
    for (std::size_t o = 0; o < shape.outputs; ++o)
      for (std::size_t g = 0; g < scales.groups; ++g) {
        auto& line = lines[o * scales.groups + g];
        line.scale = scales.of(o, g);
        if (zeros)
          line.offset = -line.scale * static_cast<float>(layout.code(zeros.get(), g, scales.groups, o));
      }
    return lines;
  };
  auto info = coded_info(shape, read_lines());
  std::vector<std::int32_t> order; // the group of each input, where they are not in order
  if (stored.find(order_name)) {
    require_shape(stored, packed, order_name, require_part(stored, packed, order_name, {tensor_type::i32}), {inputs});
    order.resize(inputs);
    std::memcpy(order.data(), stored.read(order_name).get(), inputs * sizeof(std::int32_t));
    bool plain = true, unused = true;
    for (std::size_t i = 0; i < inputs; ++i) {
      unused = unused && order[i] == -1;
      plain = plain && order[i] == static_cast<std::int32_t>(i / shape.group);
    }
    if (plain || unused)
      order.clear();
    for (const auto group : order)
      if (group < 0 || static_cast<std::size_t>(group) >= groups)
        refuse_part(stored, packed, order_name,
                    "names the group " + std::to_string(group) + ", expected one of " + std::to_string(groups));
    parts.push_back(order_name);
  }
  if (!order.empty()) {
    info.type = tensor_type::f32;
    info.bytes = outputs * inputs * sizeof(float);
  }
  to.add(stem + ".weight", info, parts,
         [&stored, packed, info, shape, read_lines, order, columns, layout]() -> tensor_data {
           const auto data = stored.read(packed);
           const auto lines = read_lines();
           const auto code = [&](std::size_t o, std::size_t i) { return layout.code(data.get(), o * columns, 1, i); };
           if (order.empty())
             return coded_rows_of(info, shape, lines, code);
           std::shared_ptr<float[]> rows(new float[shape.outputs * shape.inputs]);
           for (std::size_t o = 0; o < shape.outputs; ++o)
             for (std::size_t i = 0; i < shape.inputs; ++i) {
               const auto& line = lines[o * (shape.inputs / shape.group) + static_cast<std::size_t>(order[i])];
               rows[o * shape.inputs + i] = line.scale * static_cast<float>(code(o, i)) + line.offset;
             }
           return rows;
         });
}

/// int8, as it is multiplied with int8 activations. `codes` [outputs, inputs] are of the tensors `parts`.
void add_plain_integers(made_checkpoint& to, const std::string& weight, std::size_t outputs, std::size_t inputs,
                        std::vector<std::string> parts, const std::function<tensor_data()>& codes) {
  const auto& stored = to.stored();
  const auto anchor = parts.front();
  const auto scale_name = weight + "_scale", zero_name = weight + "_zero_point";
  const auto scales = read_scales(stored, anchor, scale_name, outputs, inputs);
  parts.push_back(scale_name);
  coded_shape shape{outputs, inputs, inputs / scales.groups, 8};
  std::vector<code_line> lines(outputs * scales.groups);
  tensor_data zeros;
  std::size_t zero_count = 0;
  if (const auto* info = stored.find(zero_name)) {
    require_part(stored, anchor, zero_name, {tensor_type::i8});
    zero_count = info->bytes;
    if (zero_count != lines.size() && zero_count != 1)
      refuse_part(stored, anchor, zero_name,
                  "has the shape " + to_string(info->shape) + ", expected as many as there are scales");
    zeros = stored.read(zero_name);
    shape.offsets = true;
    parts.push_back(zero_name);
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i].scale = scales.of(i / scales.groups, i % scales.groups);
    if (zeros)
      lines[i].offset = -lines[i].scale *
        static_cast<float>(static_cast<const std::int8_t*>(zeros.get())[zero_count == 1 ? 0 : i]);
  }
  const auto info = coded_info(shape, lines);
  to.add(weight, info, parts, [codes, info, shape, lines]() -> tensor_data {
    const auto data = codes();
    const auto* bytes = static_cast<const std::int8_t*>(data.get());
    return coded_rows_of(info, shape, lines,
                         [&](std::size_t o, std::size_t i) { return int(bytes[o * shape.inputs + i]); });
  });
}

void add_fp4(made_checkpoint& to, const std::string& packed) {
  const auto stem = packed.substr(0, packed.size() - packed_suffix.size());
  const auto scales = stem + std::string(scale_suffix), global = stem + ".weight_global_scale";
  to.hide(stem + ".input_global_scale");
  if (to.stored().find(global))
    add_nvfp4(to, stem + ".weight", {packed, scales, global, true});
  else
    add_mxfp4(to, stem + ".weight", packed, scales);
}

} // namespace

std::unique_ptr<const checkpoint> open_compressed(std::unique_ptr<const checkpoint> stored,
                                                  const std::vector<int>& code_bits) {
  auto bits = code_bits;
  std::ranges::sort(bits);
  bits.erase(std::unique(bits.begin(), bits.end()), bits.end());
  auto result = std::make_unique<made_checkpoint>(std::move(stored));
  const auto& tensors = result->stored();
  for (const auto& name : tensors.tensors()) {
    const auto type = tensors.find(name)->type;
    if (name.ends_with(packed_suffix)) {
      if (type == tensor_type::u8)
        add_fp4(*result, name);
      else
        add_packed_integers(*result, name, bits);
    } else if (name.ends_with(pruned_mask_suffix)) {
      const auto weight = read_pruned(tensors, name);
      if (weight.info.type == tensor_type::i8)
        add_plain_integers(*result, weight.name, weight.info.shape[0], weight.info.shape[1], weight.parts, weight.make);
      else
        result->add(weight.name, weight.info, weight.parts, weight.make);
    } else if (name.ends_with(".weight") && type == tensor_type::i8) {
      const auto& codes = *tensors.find(name);
      require_matrix(tensors, name, name, codes);
      add_plain_integers(*result, name, codes.shape[0], codes.shape[1], {name},
                         [&tensors, name] { return tensors.read(name); });
    } else if (name.ends_with(".input_scale") || name.ends_with(".input_zero_point") ||
               name.ends_with(".input_global_scale") || name.ends_with(".k_scale") || name.ends_with(".v_scale")) {
      const auto weight = name.substr(0, name.rfind('.')) + ".weight";
      if (const auto* found = tensors.find(weight); !found || found->type != tensor_type::f8_e4m3)
        result->hide(name); // of activations that are quantised in advance
    }
  }
  return result;
}

} // namespace troupe
