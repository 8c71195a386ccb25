// What a repository of the hub holds, as its API tells, and which of it makes a model. Plain functions on untrusted
// text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::hub {

struct remote_file {
  std::string path;                  // within the repository
  std::optional<std::uint64_t> size; // nothing: the listing does not say
  std::string checksum; // its name in a cache: SHA-256, or Git's of a blob; empty: the listing does not say

  bool operator==(const remote_file&) const = default;
};

struct repository {
  std::string commit;
  std::vector<remote_file> files;
};

/// Reads the answer to /api/models/ORG/NAME/revision/REVISION?blobs=true. Throws failure(bad_file) that begins with
/// `name` for whatever is no such answer: paths that lead out of a folder are refused.
repository parse_repository(std::string_view answer, const std::string& name);

/// Whether `text` may name a version or a file in a cache: hexadecimal digits, or letters and the like; no path.
bool is_cache_name(std::string_view text);

/// A name of a branch or tag, which may have slashes.
bool is_revision(std::string_view text);

struct model_request {
  std::string id;       // "ORG/NAME"
  std::string format;   // "Q4_K_M"; empty: none was asked for
  std::string revision; // "main"
};

/// "ORG/NAME", "ORG/NAME:FORMAT", and addresses of such a page ("hf.co/ORG/NAME"). Throws failure(bad_request).
model_request parse_model_request(std::string_view text, std::string_view endpoint);

/// The files that make a model: all parts of the GGUF file of `format`; without a format, a folder of safetensors, or
/// else the GGUF file of a format that most people take. Throws failure(not_found | unsupported), naming what there is.
std::vector<remote_file> select_files(const repository& from, const std::string& id, const std::string& format);

} // namespace troupe::hub
