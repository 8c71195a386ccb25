// Writes GGUF files, version 3; gguf.hpp reads them. Metadata and the list of tensors are collected first, then the
// file is written in one pass. Used by one thread.
#pragma once

#include "runtime/checkpoint/gguf.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

class gguf_writer {
public:
  void add(std::string_view key, std::uint32_t value) { add_scalar(key, gguf_type::u32, &value, sizeof value); }
  void add(std::string_view key, std::int32_t value) { add_scalar(key, gguf_type::i32, &value, sizeof value); }
  void add(std::string_view key, float value) { add_scalar(key, gguf_type::f32, &value, sizeof value); }
  void add(std::string_view key, bool value) { add_scalar(key, gguf_type::boolean, &value, sizeof value); }
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, const std::vector<std::string>& values);
  void add(std::string_view key, const std::vector<float>& values);
  void add(std::string_view key, const std::vector<std::int32_t>& values);
  /// A value as read from another file.
  void add(std::string_view key, const gguf_value& value);

  /// `name` follows GGUF's conventions, `type` is a float or a block type, `shape` has the outermost dimension first.
  void add_tensor(std::string name, tensor_type type, std::vector<std::size_t> shape);

  /// Returns the bytes of tensor `index`, valid until the next call.
  using tensor_bytes_fn = std::function<std::span<const std::byte>(std::size_t index)>;

  /// Asks for the bytes of each tensor in the order of add_tensor. The file replaces an older one atomically, once it
  /// is complete on disk. Throws failure(bad_file) naming it, also while another process is writing it, and what
  /// `bytes_of_tensor` throws.
  void write(const std::filesystem::path& file, const tensor_bytes_fn& bytes_of_tensor) const;

  /// The part of the file before the first tensor's bytes.
  std::string head() const;

  std::size_t tensors() const { return tensors_.size(); }
  /// Bytes of all tensors, without padding.
  std::size_t tensor_bytes() const;

private:
  struct tensor {
    std::string name;
    tensor_info info;
  };

  void add_scalar(std::string_view key, gguf_type type, const void* value, std::size_t bytes);
  void begin(std::string_view key, gguf_type type);
  void begin_array(std::string_view key, gguf_type element, std::size_t count);

  std::string keys_; // serialised
  std::uint64_t key_count_ = 0;
  std::vector<tensor> tensors_;
};

} // namespace troupe
