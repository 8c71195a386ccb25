// How a model's tensors stand in a GGUF file: the reverse of gguf_architectures. Names, fused matrices, experts as one
// tensor, the order of rows. Their conventions are llama.cpp's.
#pragma once

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/model/decoder/mtp_layers.hpp"
#include "runtime/model/model_config.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A tensor to be written, of the presented ones.
struct laid_out_tensor {
  struct part {
    std::string name{};               // as presented
    row_order rows{};                 // which of its rows, in the order of the file; null: all, as they are
    row_order columns{};              // the same; of floats
    float factor = 1, offset = 0;     // of all values
    bool negated_exponential = false; // of all values
  };

  std::string name;               // in the file
  std::vector<std::size_t> shape; // outermost first
  std::vector<part> parts;        // one behind the other
};

/// All tensors of a model that gguf_architecture_for knows. `of_gguf`: it comes from a GGUF file, whose metadata stays,
/// and with it the way in which q and k are rotated.
std::vector<laid_out_tensor> gguf_layout(const model_config& model, bool of_gguf);

// Nemotron H's layers of multi-token prediction are two in a folder, a mixer and an MLP, and one in files.
bool folds_mtp_layers(const mtp_layers& layers);
/// The configuration of the model with them (with_mtp_layers), as files describe it.
model_config folded_mtp_layers(model_config all);
/// The layout of both, with the second layer's tensors in the first.
void fold_mtp_layout(std::vector<laid_out_tensor>& layout, int first);

/// The tensors of multi-token prediction beside its layers, which `gguf_layout` of both together has.
std::vector<laid_out_tensor> gguf_mtp_layout(const mtp_layers& layers);

} // namespace troupe
