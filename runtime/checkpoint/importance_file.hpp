// Importance matrices: how much errors of each input of a matrix count when it is quantised, as the mean square of what
// the input was on a calibration text. Reads and writes both of llama.cpp's formats: its older binary one (`.dat`) and
// GGUF files of the type `imatrix`. Files are untrusted.
// Formats: `tools/imatrix/imatrix.cpp` of https://github.com/ggml-org/llama.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace troupe {

/// The importance of one matrix, or of all experts of a layer, one after another.
struct tensor_importance {
  std::vector<float> mean_squares;   // [matrices, inputs]
  std::vector<std::uint64_t> counts; // rows seen by each matrix; its mean squares are 0 if it has seen none
};

struct importance_table {
  std::map<std::string, tensor_importance, std::less<>> tensors; // by GGUF's names: "blk.0.attn_q.weight"
  std::string text;                                              // the calibration text's name, for messages
  std::uint32_t chunks = 0, chunk_tokens = 0;                    // that it was read in; 0: unknown

  /// The values of a matrix; null if it is not in the table.
  const tensor_importance* find(std::string_view gguf_name) const {
    const auto found = tensors.find(gguf_name);
    return found == tensors.end() ? nullptr : &found->second;
  }
};

/// Throws failure(bad_file) that names the file, the tensor, what was found and what was expected.
importance_table read_importance(const std::filesystem::path& file);

/// Writes a GGUF file if the name ends in .gguf, else the older format. The file appears when it is complete. Throws
/// failure(bad_file).
void write_importance(const std::filesystem::path& file, const importance_table& table);

} // namespace troupe
