// Which tensors of a GGUF file are which of a model: one table of names and forms, for reading and writing. Immutable;
// any thread.
#pragma once

#include "runtime/model/model_config.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// How a tensor is stored in a file.
enum class gguf_storage : std::uint8_t {
  whole,
  rows,           // behind those of other tensors
  turns,          // rows of each head, in turn with those of another tensor
  vector,         // a matrix of one row
  heads,          // a vector as a matrix, with a row for each head,
  groups,         // for each group of channels that is normed,
  column,         // or for each element,
  inner_column,   // or [1, 1, elements, 1]
  inner_channels, // a matrix as [1, rows, 1, columns]
};

/// Where a tensor is in a file.
struct gguf_place {
  std::string name;
  gguf_storage how = gguf_storage::whole;
  int slice = -1; // one of several matrices that are one tensor; -1: it is not
};

class gguf_names {
public:
  /// Knows the tensors that have one name in all models, as most matrices do.
  gguf_names() = default;
  /// Knows the tensors of a model: its architecture decides, and what each layer consists of.
  explicit gguf_names(const model_config& model);

  /// "model.norm.weight" → "output_norm.weight", and back, for tensors that are stored as they are. A name without a
  /// counterpart is kept.
  std::string in_file(std::string_view folder) const;
  std::string in_folder(std::string_view file) const;

  /// The place of any tensor of the model.
  gguf_place place_of(std::string_view folder) const;

  /// Whether a layer has forms of gguf_architecture, such as fused matrices, whatever its architecture says.
  void assume(int layer, std::uint64_t forms, bool given);

private:
  /// `alone`: only for tensors that are stored as they are.
  gguf_place counterpart(std::string_view full, bool of_file, bool alone) const;

  std::uint64_t outer_ = 0; // forms and conditions of the model
  std::vector<std::uint64_t> layers_;
};

/// gguf_names().in_file
std::string gguf_tensor_name(std::string_view folder);

} // namespace troupe
