// Low-rank adapters (LoRA): what a file of one holds, checked, and the model that it has to fit. Immutable plain data;
// any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace troupe {

/// The matrices of a layer that adapters change.
enum class projection : std::uint8_t { q, k, v, o, gate, up, down };
inline constexpr std::size_t projection_count = 7;

/// What is added to a projection: in · aᵀ · bᵀ.
struct low_rank {
  std::size_t rank = 0; // 0: nothing
  std::vector<float> a; // [rank, inputs]
  std::vector<float> b; // [outputs, rank], times alpha / rank, or alpha / sqrt(rank)
};

struct adapter_weights {
  std::vector<std::array<low_rank, projection_count>> layers;
};

/// The matrices that an adapter may change, of a model.
struct adapter_target {
  struct shape {
    std::size_t outputs = 0, inputs = 0; // 0: the layer has none, or one that takes no adapter
  };
  std::vector<std::array<shape, projection_count>> layers;
  // Where files keep the rows of a head of q and k: row i, as kernels rotate, is row order[i]; empty: in order.
  std::vector<std::uint32_t> half_order = {}, pair_order = {}; // files that pair halves of a head, or neighbours
  bool folders_pair = false;                                   // PEFT's folders pair neighbours, as the family's own
};

/// Bounds of files.
inline constexpr std::size_t most_adapter_rank = 512;

/// Reads a folder as PEFT writes it (adapter_config.json, adapter_model.safetensors), or a GGUF adapter of llama.cpp.
/// Throws failure(not_found | bad_file | unsupported) that names file and key or tensor, what was found and what was
/// expected: for anything that is not a plain LoRA of the target's projections (DoRA, biases, saved modules,
/// embeddings, experts), other shapes, half of a pair, values that are not finite, nothing at all.
adapter_weights read_adapter(const std::filesystem::path& path, const adapter_target& target);

/// Bytes of the values that a file adds to memory at most: of its file, as f32.
inline constexpr std::size_t most_adapter_bytes = std::size_t(4) << 30;

struct packed_adapter; // runtime/adapters/packed_adapter.hpp

/// Consecutive rows of a step that an adapter is for.
struct adapted_rows {
  std::shared_ptr<const packed_adapter> by;
  std::int32_t first_row = 0, rows = 0;
};

} // namespace troupe
