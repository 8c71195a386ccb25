// How a folder's matrices are quantised: the `quantization_config` of its config.json. Read by the reader of
// configurations, used by open_quantised.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

namespace json {
class document;
}

inline constexpr std::array gptq_bits{2, 3, 4, 8};
inline constexpr std::array auto_round_bits{2, 3, 4, 5, 6, 7, 8};

struct quantised_storage {
  enum class method_name : std::uint8_t { gptq, awq, fp8, mxfp4, bitsandbytes, compressed, torchao, modelopt, hqq };
  method_name method = method_name::gptq;
  // GPTQ and AWQ, also those of AutoRound:
  int bits = 4;                // of a code
  std::size_t group = 0;       // inputs per scale; 0: all
  bool symmetric = false;      // all zero points are in the middle
  bool zeros_less_one = false; // GPTQ's first format: one is subtracted from each zero point
  bool by_module = false; // bits and groups may differ by module (GPTQModel's `dynamic`, AutoRound's `extra_config`)
  std::vector<std::size_t> groups; // by_module: inputs per scale in any module, as far as they are named; 0: all
  // bits of integer codes in any module; compressed-tensors: in any of its groups
  std::vector<int> code_bits;
  // fp8: outputs and inputs that share a scale, where matrices are divided into blocks
  std::array<std::size_t, 2> scale_block{};
};

/// Nothing if the configuration has none. Throws failure(bad_file | unsupported) naming the file and the key.
std::optional<quantised_storage> parse_quantised_storage(const json::document& config);

/// Reads an `hf_quant_config.json`, which NVIDIA's ModelOpt writes beside config.json, in the same way.
std::optional<quantised_storage> parse_modelopt_storage(const json::document& config);

} // namespace troupe
