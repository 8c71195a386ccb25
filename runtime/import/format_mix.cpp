#include "runtime/import/format_mix.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace troupe {

namespace {

constexpr std::array writable_formats{
  export_format{"q8_0", tensor_type::q8_0, mix_style::none, 7},
  export_format{"q6_k", tensor_type::q6_k, mix_style::none, 18},
  export_format{"q5_1", tensor_type::q5_1, mix_style::none, 9},
  export_format{"q5_0", tensor_type::q5_0, mix_style::none, 8},
  export_format{"q5_k_m", tensor_type::q5_k, mix_style::medium, 17},
  export_format{"q5_k_s", tensor_type::q5_k, mix_style::small, 16},
  export_format{"q4_1", tensor_type::q4_1, mix_style::none, 3},
  export_format{"q4_k_m", tensor_type::q4_k, mix_style::medium, 15},
  export_format{"q4_k_s", tensor_type::q4_k, mix_style::small, 14},
  export_format{"q4_0", tensor_type::q4_0, mix_style::none, 2},
  export_format{"iq4_nl", tensor_type::iq4_nl, mix_style::small, 25},
  export_format{"iq4_xs", tensor_type::iq4_xs, mix_style::small, 30},
  export_format{"q3_k_l", tensor_type::q3_k, mix_style::large, 13},
  export_format{"q3_k_m", tensor_type::q3_k, mix_style::medium, 12},
  export_format{"q3_k_s", tensor_type::q3_k, mix_style::small, 11},
  export_format{"q2_k", tensor_type::q2_k, mix_style::medium, 10},
  export_format{"q2_k_s", tensor_type::q2_k, mix_style::small, 21},
  export_format{"f16", tensor_type::f16, mix_style::none, 1},
  export_format{"bf16", tensor_type::bf16, mix_style::none, 32},
  export_format{"f32", tensor_type::f32, mix_style::none, 0},
};

enum class matrix_site : std::uint8_t { embedding, head, v, o, down, other };

matrix_site site_of(std::string_view tensor) {
  const auto has = [&](std::string_view part) { return tensor.find(part) != tensor.npos; };
  return tensor == "model.embed_tokens.weight" ? matrix_site::embedding
    : tensor == "lm_head.weight"               ? matrix_site::head
    : has(".v_proj.")                          ? matrix_site::v
    : has(".o_proj.")                          ? matrix_site::o
    : has(".down_proj.")                       ? matrix_site::down
                                               : matrix_site::other;
}

/// "model.layers.7.mlp..." → 7.
std::optional<int> mixed_layer_of(std::string_view tensor) {
  constexpr std::string_view before = ".layers.";
  const auto at = tensor.find(before);
  if (at == tensor.npos)
    return std::nullopt;
  const auto* first = tensor.data() + at + before.size();
  int layer = 0;
  if (std::from_chars(first, tensor.data() + tensor.size(), layer).ec != std::errc())
    return std::nullopt;
  return layer;
}

/// The first and the last eighth of the layers, and each third of those between.
bool matters_more(int layer, int layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/// What a matrix gets where `format` is a mix. Values and what leaves an MLP are most sensitive.
tensor_type mixed_type(matrix_site where, int layer, const export_format& format, const model_config& config,
                       const mix_conditions& conditions) {
  const bool grouped = config.heads / std::max(1, config.kv_heads) >= 4; // one V serves many queries
  const bool more = matters_more(layer, config.layers);
  const bool large = format.mix == mix_style::large, medium = format.mix == mix_style::medium;
  switch (*format.type.format()) {
    case kernels::weight_format::q2_k:
      if (where == matrix_site::v)
        return grouped ? tensor_type::q4_k : medium ? tensor_type::q3_k : format.type;
      if (where == matrix_site::down)
        return medium ? tensor_type::q3_k : layer < config.layers / 8 ? tensor_type::q4_k : format.type;
      return where == matrix_site::o && medium ? tensor_type::q3_k : format.type;
    case kernels::weight_format::q3_k:
      if (large)
        return where == matrix_site::v || where == matrix_site::down || where == matrix_site::o ? tensor_type::q5_k
                                                                                                : format.type;
      if (!medium)
        return format.type;
      if (where == matrix_site::v)
        return layer < 2 ? tensor_type::q5_k : tensor_type::q4_k;
      if (where == matrix_site::down)
        return layer < config.layers / 16 ? tensor_type::q5_k : tensor_type::q4_k;
      return where == matrix_site::o ? tensor_type::q4_k : format.type;
    case kernels::weight_format::q4_k:
      if (medium)
        return (where == matrix_site::v || where == matrix_site::down) && more ? tensor_type::q6_k : format.type;
      return (where == matrix_site::v && layer < 4) || (where == matrix_site::down && layer < config.layers / 8)
        ? tensor_type::q5_k
        : format.type;
    case kernels::weight_format::q5_k:
      return medium && (where == matrix_site::v || where == matrix_site::down) && more ? tensor_type::q6_k
                                                                                       : format.type;
    case kernels::weight_format::iq4_nl:
    case kernels::weight_format::iq4_xs:
      if (where == matrix_site::v)
        return grouped ? tensor_type::q5_k : format.type;
      return where == matrix_site::down && layer < config.layers / 8 && !conditions.importance ? tensor_type::q5_k
                                                                                               : format.type;
    default: return format.type;
  }
}

/// The type of embedding and head. Blocks of 32 keep them in q8_0; the others follow llama.cpp: the matrix that makes
/// logits has 6 bits, a table of its own the bits of the other matrices.
tensor_type outer_type(matrix_site where, const export_format& format, const model_config& config) {
  const auto type = *format.type.format();
  if (is_float(type))
    return format.type;
  const bool few = block_inputs(type) == 256 || type == kernels::weight_format::iq4_nl;
  if (!few)
    return tensor_type::q8_0;
  return where == matrix_site::head || config.tied ? tensor_type::q6_k : format.type;
}

/// The type for rows that do not fill blocks of 256.
tensor_type smaller_blocks(tensor_type type) {
  switch (*type.format()) {
    case kernels::weight_format::q2_k:
    case kernels::weight_format::q3_k: return tensor_type::q4_0;
    case kernels::weight_format::iq4_xs: return tensor_type::iq4_nl;
    case kernels::weight_format::q4_k: return tensor_type::q5_0;
    case kernels::weight_format::q5_k: return tensor_type::q5_1;
    case kernels::weight_format::q6_k: return tensor_type::q8_0;
    default: return type;
  }
}

} // namespace

std::span<const export_format> export_formats() { return writable_formats; }

const export_format* find_export_format(std::string_view name) {
  constexpr std::array<std::string_view, 3> short_names{"q3_k", "q4_k", "q5_k"};
  const auto known = std::ranges::find(short_names, name) == short_names.end() ? std::string(name)
                                                                               : std::string(name) + "_m";
  const auto found = std::ranges::find(writable_formats, known, &export_format::name);
  return found == writable_formats.end() ? nullptr : &*found;
}

bool is_exact_when_written(std::string_view tensor) {
  return tensor.ends_with(".mlp.gate.weight") || tensor.ends_with(".shared_expert_gate.weight") ||
    tensor.ends_with(".indexer.weights_proj.weight") || tensor.ends_with("conv.weight") ||
    tensor.ends_with(".recurrent.decay") || tensor == "model.position_embeddings.weight" ||
    tensor == "model.token_type_embeddings.weight" || tensor.find(".altup.") != tensor.npos ||
    tensor.find("hyper_connection") != tensor.npos || tensor.ends_with(".mlp.gate.tid2eid") ||
    tensor.find(".shared_block.pair.") != tensor.npos || tensor.ends_with(".self_attn.distances");
}

tensor_type written_type(std::string_view tensor, const tensor_info& info, const export_format& format,
                         const model_config& config, const mix_conditions& conditions) {
  if (info.shape.size() == 1 || is_exact_when_written(tensor))
    return tensor_type::f32;
  const auto where = site_of(tensor);
  const bool outer = where == matrix_site::embedding || where == matrix_site::head;
  auto type = conditions.pure       ? format.type
    : outer                         ? outer_type(where, format, config)
    : format.mix == mix_style::none ? format.type
                                    : mixed_type(where, mixed_layer_of(tensor).value_or(0), format, config, conditions);
  const auto fits = [&] { return info.shape.back() % kernels::block_inputs(*weight_format_of(type)) == 0; };
  if (!fits())
    type = smaller_blocks(type);
  return fits() ? type : tensor_type::f16;
}

} // namespace troupe
