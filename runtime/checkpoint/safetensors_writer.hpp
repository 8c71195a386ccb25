// Writes safetensors files; safetensors.hpp reads them. The list of tensors is collected first, then the file is
// written in one pass. Used by one thread.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class safetensors_writer {
public:
  /// `dtype` as files say it ("F32", "I32"), with so many bytes an element.
  void add_tensor(std::string name, std::string_view dtype, std::size_t element_bytes, std::vector<std::size_t> shape);

  /// The bytes of tensor `index`, valid until the next call.
  using tensor_bytes_fn = std::function<std::span<const std::byte>(std::size_t index)>;

  /// Asks for the bytes of each tensor in the order of add_tensor. The file appears once it is complete on disk. Throws
  /// failure(bad_file) naming it, also while another process is writing it, and what `bytes_of_tensor` throws.
  void write(const std::filesystem::path& file, const tensor_bytes_fn& bytes_of_tensor) const;

  std::size_t tensors() const { return ends_.size(); }
  std::size_t tensor_bytes() const { return ends_.empty() ? 0 : ends_.back(); }

private:
  std::string entries_; // of the header
  std::vector<std::size_t> ends_;
};

} // namespace troupe
