// Opens and reads untrusted files safely: no endless pipes, no devices, no file that exhausts memory. All files of a
// checkpoint and all files named by options are opened here. Any thread.
#pragma once

#include "runtime/support/files/file_state.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// The role of a file, for messages, and its size limit: several times the largest known.
struct file_kind {
  std::string_view name;
  std::size_t most_bytes;
};

namespace files {
inline constexpr file_kind configuration{"a configuration", std::size_t(16) << 20};
inline constexpr file_kind tokenizer{"a tokenizer", std::size_t(256) << 20};
inline constexpr file_kind chat_template{"a chat template", std::size_t(1) << 20};
inline constexpr file_kind index{"a list of tensors", std::size_t(64) << 20};
inline constexpr file_kind text{"a text", std::size_t(256) << 20};
} // namespace files

/// A regular file, open for reading. Its state comes from the open descriptor, so it cannot be swapped in between.
class regular_file {
public:
  /// Never blocks. Throws failure(not_found | bad_file) naming the file.
  explicit regular_file(const std::filesystem::path& file);
  ~regular_file();
  regular_file(const regular_file&) = delete;
  regular_file& operator=(const regular_file&) = delete;

  int descriptor() const { return descriptor_; }
  const file_state& state() const { return state_; }

private:
  int descriptor_;
  file_state state_;
};

/// The content of `file`. Throws failure(not_found | bad_file) unless it is a regular file within the limit of its
/// kind, or if it is a Git LFS pointer.
std::string read_file(const std::filesystem::path& file, const file_kind& kind);

/// Reads an open descriptor as `read_file` reads a file. It may be a pipe; `name` stands for it in messages.
std::string read_all(int descriptor, const std::string& name, const file_kind& kind);

/// Up to `bytes` bytes from the start of `file`. Throws as `read_file`.
std::string read_start(const std::filesystem::path& file, std::size_t bytes);

/// Throws failure(bad_file) if `content` is a Git LFS pointer instead of the file itself.
void check_fetched(std::string_view content, const std::string& file);

} // namespace troupe
