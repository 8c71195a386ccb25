// Opened GGUF files: one, or the parts of a model in several, which are presented as one. Immutable, shared by the
// checkpoint and the tokenizer made from it; any number of threads read it.
#pragma once

#include "runtime/checkpoint/gguf.hpp"
#include "runtime/support/files/mapped_file.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A name as `llama-gguf-split` and converters give it: "model-00001-of-00003.gguf".
struct gguf_part_name {
  std::string stem; // "model", with its folder
  int number = 1;   // from 1 on
  int count = 1;

  /// Nothing for other names.
  static std::optional<gguf_part_name> of(const std::filesystem::path& file);
  /// That of another part.
  std::filesystem::path part(int other) const;
};

class gguf_file {
public:
  /// Opens `file`, and the others where it is the first of several (`split.count`); for metadata alone, only the first.
  /// Throws failure(not_found | bad_file | unsupported | out_of_memory), also where the parts are not of one model.
  explicit gguf_file(const std::filesystem::path& file, gguf_part part = gguf_part::all);

  /// The first file's.
  const std::string& name() const { return parts_.front()->name; }
  const gguf_metadata& metadata() const { return parts_.front()->content.metadata; }

  /// The tensors of all parts.
  const std::map<std::string, gguf_tensor, std::less<>>& tensors() const { return parts_.front()->content.tensors; }

  const std::string& name_of(const gguf_tensor& t) const { return parts_[t.part]->name; }
  const mapped_file& map_of(const gguf_tensor& t) const { return parts_[t.part]->map; }
  std::span<const std::byte> bytes_of(const gguf_tensor& t) const {
    return map_of(t).bytes().subspan(t.offset, t.info.bytes);
  }

  /// The state of each file when it was opened.
  std::vector<file_state> files() const;

private:
  struct part_file {
    part_file(const std::filesystem::path& file, gguf_part part)
      : name(file.string()), map(file), content(read_gguf(map.bytes(), name, part)) {}

    std::string name;
    mapped_file map;
    gguf_content content;
  };

  void add_parts(const std::filesystem::path& first, int count);
  void check_part(const part_file& part, int number, int count) const;

  std::vector<std::unique_ptr<part_file>> parts_;
};

} // namespace troupe
