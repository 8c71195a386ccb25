// What exports to folders of Hugging Face's files share: which models can be exported so, and everything but tensors.
#pragma once

#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/support/files/descriptor.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// A folder that appears under its name complete, or not at all. One process writes it at a time.
class new_folder {
public:
  /// Throws failure(bad_request) if `folder` is there and not empty, failure(bad_file) if it cannot be written.
  explicit new_folder(std::filesystem::path folder);
  ~new_folder();
  new_folder(const new_folder&) = delete;
  new_folder& operator=(const new_folder&) = delete;

  /// Where to write until `commit`.
  const std::filesystem::path& path() const { return beside_; }
  void commit();

private:
  std::filesystem::path folder_, beside_;
  descriptor opened_;  // holds the lock on `beside_`
  bool owned_ = false; // this process makes `beside_`
};

/// Opens a model that can be exported to a folder: one in a folder, whose tensors have Llama's names and are not
/// quantised. Logs what check_tensors says. Throws failure(unsupported | bad_request), and as open_model.
model_source open_folder(const std::string& model, const log_sink& log);

/// The matrices of layers, in the order in which exports ask for their feedback.
std::vector<std::string> layer_matrices(const model_config& config);

/// Writes `from`'s config.json with `quantization` (JSON) as its `quantization_config`, and copies whatever else
/// describes the model: tokenizer, template, defaults.
void describe_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::string& quantization);

} // namespace troupe
