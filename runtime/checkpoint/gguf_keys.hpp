// The metadata of one GGUF architecture: keys without its prefix. For the readers of configurations.
#pragma once

#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/support/error.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class architecture_keys {
public:
  architecture_keys(const gguf_file& file, std::string_view architecture)
    : file_(file), metadata_(file.metadata()), prefix_(std::string(architecture) + ".") {}

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  std::string label(std::string_view key) const { return metadata_.label(full(key)); }

  std::optional<int> integer(std::string_view key, int low, int high) const {
    const auto found = metadata_.integer(full(key), low, high);
    return found ? std::optional(static_cast<int>(*found)) : std::nullopt;
  }
  /// Required.
  int size(std::string_view key, int high) const {
    if (const auto found = integer(key, 1, high))
      return *found;
    throw failure(errc::bad_file, label(key) + " is missing");
  }
  std::optional<double> number(std::string_view key, double low, double high) const {
    return metadata_.number(full(key), low, high);
  }
  std::optional<bool> boolean(std::string_view key) const { return metadata_.boolean(full(key)); }
  /// An array of booleans; nothing where the key is absent or has another kind.
  std::optional<std::vector<bool>> booleans(std::string_view key) const {
    const auto* found = metadata_.find(full(key));
    return found && found->type == gguf_type::array ? metadata_.booleans(full(key)) : std::nullopt;
  }
  std::optional<std::string_view> string(std::string_view key) const { return metadata_.string(full(key)); }

  /// The tensor of that name, or null.
  const gguf_tensor* tensor(std::string_view name) const {
    const auto found = file_.tensors().find(name);
    return found == file_.tensors().end() ? nullptr : &found->second;
  }
  const gguf_file& file() const { return file_; }

private:
  const gguf_file& file_;
  const gguf_metadata& metadata_;
  std::string prefix_;
};

} // namespace troupe
