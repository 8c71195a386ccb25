// Which format each matrix of an exported model gets. The mixes are those of llama.cpp's `llama-quantize`, by its
// names, so that a name means the same bits per weight in both. Plain; any thread.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/model/model_config.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace troupe {

/// How matrices that matter more get more bits.
enum class mix_style : std::uint8_t { none, small, medium, large };

/// A format that models can be exported in.
struct export_format {
  std::string_view name; // "q4_k_m"
  tensor_type type;      // of most matrices
  mix_style mix = mix_style::none;
  std::uint32_t file_type = 0; // GGUF's general.file_type
};

std::span<const export_format> export_formats();

/// Null for an unknown name. `q3_k`, `q4_k` and `q5_k` mean `q3_k_m`, `q4_k_m` and `q5_k_m`.
const export_format* find_export_format(std::string_view name);

struct mix_conditions {
  bool pure = false;       // every matrix in the format's type
  bool importance = false; // there is an importance matrix
};

/// Routers choose, and tables of positions and types are read by row: they stay in f32.
bool is_exact_when_written(std::string_view tensor);

/// The type that a tensor is written in: vectors, and what stays exact, in f32; matrices in what the mix says, or if
/// their rows do not fill its blocks, in a type with smaller blocks and as many bits, else in f16.
tensor_type written_type(std::string_view tensor, const tensor_info& info, const export_format& format,
                         const model_config& config, const mix_conditions& conditions = {});

} // namespace troupe
