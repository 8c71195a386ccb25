// Random adapters for an engine's model, as GGUF files.
#pragma once

#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/model_products.hpp"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace troupe::testing {

/// One file for each of `names` in `folder`, of ranks 4, 5, ..., for all projections that take adapters. For the flag
/// `lora`.
inline std::vector<std::string> adapters_for(const std::string& model, const std::filesystem::path& folder,
                                             const std::vector<std::string>& names) {
  constexpr const char* stored[] = {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"};
  const auto target = products_of(open_model(model).config);
  std::vector<std::string> sources;
  for (const auto& name : names) {
    std::mt19937 random(static_cast<unsigned>(sources.size() + 1));
    std::normal_distribution<float> value(0, 0.2f);
    const auto rank = sources.size() + 4;
    gguf_writer writer;
    writer.add("general.architecture", std::string_view("qwen2"));
    writer.add("general.type", std::string_view("adapter"));
    writer.add("adapter.type", std::string_view("lora"));
    writer.add("adapter.lora.alpha", 8.0f);
    std::vector<std::vector<float>> all;
    const auto add = [&](const std::string& tensor, std::size_t rows, std::size_t cols) {
      writer.add_tensor(tensor, tensor_type::f32, {rows, cols});
      std::ranges::generate(all.emplace_back(rows * cols), [&] { return value(random); });
    };
    for (std::size_t i = 0; i < target.layers.size(); ++i)
      for (std::size_t p = 0; p < projection_count; ++p)
        if (const auto& [outputs, inputs] = target.layers[i][p]; outputs > 0) {
          const auto stem = "blk." + std::to_string(i) + "." + stored[p] + ".weight.lora_";
          add(stem + "a", rank, inputs);
          add(stem + "b", outputs, rank);
        }
    const auto file = folder / name;
    writer.write(file, [&](std::size_t i) { return std::as_bytes(std::span(all[i])); });
    sources.push_back(name + "=" + file.string());
  }
  return sources;
}

} // namespace troupe::testing
