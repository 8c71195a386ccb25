// Reads files of low-rank adapters (LoRA), and checks that they fit a model. Pure functions and plain data; any thread.
#pragma once

#include "runtime/techniques/products.hpp"

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// What is added to a projection: in · aᵀ · bᵀ.
struct low_rank {
  std::size_t rank = 0; // 0: nothing
  std::vector<float> a; // [rank, inputs]
  std::vector<float> b; // [outputs, rank], times alpha / rank, or alpha / sqrt(rank)
};

struct adapter_weights {
  std::vector<std::array<low_rank, projection_count>> layers;
  std::vector<std::string> remarks = {}; // for the log: settings that have no effect
};

/// Bounds of files: ranks, and bytes of the values as f32.
inline constexpr std::size_t most_adapter_rank = 512, most_adapter_bytes = std::size_t(4) << 30;

/// Reads a folder as PEFT writes it (adapter_config.json, adapter_model.safetensors), or a GGUF adapter of llama.cpp.
/// Throws failure(not_found | bad_file | unsupported) that names file and key or tensor, what was found and what was
/// expected: for anything that is not a plain LoRA of the target's projections (DoRA, biases, saved modules,
/// embeddings, experts), other shapes, half of a pair, values that are not finite, nothing at all.
adapter_weights read_adapter(const std::filesystem::path& path, const model_products& target);

} // namespace troupe
