// Opening and reading files that somebody else chose: no pipe that never ends, no device, nothing that fills the memory.
// All files of a checkpoint and all that options name are opened here. Any thread.
#pragma once

#include "runtime/support/file_state.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// What a file is read as, for messages, and how large it may be: several times the largest known.
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

/// A regular file, open for reading. What it is was asked of the open file, so that it cannot be exchanged in between.
class regular_file {
public:
  /// Never waits. Throws failure(not_found | bad_file) naming the file.
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

/// All of `file`. Throws failure(not_found | bad_file) where it is not a regular file, larger than its kind may be, or a
/// Git LFS pointer.
std::string read_file(const std::filesystem::path& file, const file_kind& kind);

/// The same of what is open as `descriptor`, which may be a pipe; `name` stands for it in messages.
std::string read_all(int descriptor, const std::string& name, const file_kind& kind);

/// Up to `bytes` bytes from the start of `file`. Throws as `read_file`.
std::string read_start(const std::filesystem::path& file, std::size_t bytes);

/// Throws failure(bad_file) where the content of `file` begins as Git LFS's stand-in for a file that was not fetched.
void check_fetched(std::string_view content, const std::string& file);

} // namespace troupe
