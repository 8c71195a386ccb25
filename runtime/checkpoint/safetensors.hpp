// Checkpoints in Hugging Face's safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes.
// Files are untrusted: everything is checked before it is used.
// Format and its checks: https://github.com/huggingface/safetensors (README and `SafeTensors::read_metadata`).
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <filesystem>
#include <map>
#include <span>

namespace troupe {

struct safetensors_entry {
  tensor_info info;
  std::size_t offset = 0; // from the start of the file
};

using safetensors_header = std::map<std::string, safetensors_entry, std::less<>>;

/// Reads and checks the header of `file`, the whole content of the file called `name`. Like the reference
/// implementation, it requires a header of at most 100 MB and tensors that cover the rest of the file without overlap
/// or gap. Throws failure(bad_file) that names the file, the tensor, what was found and what was expected.
safetensors_header read_safetensors_header(std::span<const std::byte> file, const std::string& name);

/// Opens the checkpoint in `folder`: `model.safetensors`, else all files listed in `model.safetensors.index.json`.
/// Throws failure(not_found | bad_file).
std::unique_ptr<checkpoint> open_safetensors(const std::filesystem::path& folder);

} // namespace troupe
