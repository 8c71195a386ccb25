// How recurrent layers stand in a GGUF file: the reverse of gguf_recurrent. Part of gguf_layout.
#pragma once

#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/import/gguf/gguf_layout.hpp"
#include "runtime/model/tensor_names.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Where a presented tensor goes: parts of one tensor come in the order in which they are placed.
struct placed_part {
  std::string name;                    // in the file
  std::vector<std::size_t> shape = {}; // of all of it; empty: as many rows as its parts have
  laid_out_tensor::part part;
};

/// Of a tensor of a layer that is stored otherwise than a llama's: its parts, and perhaps those of another, whose own
/// are none; nothing for others. `rest`: its name without the layer's prefix. `order`: of the rows of q and k, or null.
std::optional<std::vector<placed_part>> place_recurrent(const model_config& model, const std::string& block,
                                                        const std::string& rest, const wanted_tensor& wanted,
                                                        const row_order& order, bool of_gguf);

/// The metadata of recurrent layers.
void describe_recurrence(gguf_writer& to, const std::function<std::string(std::string_view)>& key,
                         const model_config& config);

} // namespace troupe
