// A whole file mapped read-only into memory. Owned by checkpoints and packed weights, which hand out parts of it; any
// number of threads read it. Keeps the file open.
#pragma once

#include "runtime/support/files/file_state.hpp"

#include <cstddef>
#include <filesystem>
#include <span>

namespace troupe {

class mapped_file {
public:
  /// Maps `file`. Throws failure(not_found | bad_file | out_of_memory) naming it.
  explicit mapped_file(const std::filesystem::path& file);

  /// Maps a file that is open, perhaps under another name than `file` yet. Throws as above.
  mapped_file(const std::filesystem::path& file, int descriptor);
  ~mapped_file();
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// The state at the time of mapping.
  const file_state& state() const { return state_; }

  /// Asks the kernel to read the pages of `part` ahead.
  void prefetch(std::span<const std::byte> part) const noexcept;

  /// Reads and maps the pages of `part`, so that later accesses do not fault. False if they cannot be read.
  bool populate(std::span<const std::byte> part) const noexcept;

  /// Releases the memory behind `part`; the next access reads it from the file again.
  void release(std::span<const std::byte> part) const noexcept;

  /// Releases the memory of the system's cache, too: the next access reads the whole pages of `part` from the disk.
  void drop(std::span<const std::byte> part) const noexcept;

  /// Bytes of the pages of `part` that are not in memory, as far as the system tells.
  std::size_t missing_bytes(std::span<const std::byte> part) const noexcept;
  bool is_in_memory(std::span<const std::byte> part) const noexcept { return missing_bytes(part) == 0; }

  /// Whether the file has its size still. If it was truncated, reading what it lost would end the process.
  bool is_whole() const noexcept;

  /// Whether `file` is the name of this file, and not of one that has taken its place.
  bool is_called(const std::filesystem::path& file) const noexcept;

private:
  bool advise(std::span<const std::byte> part, int advice) const noexcept;
  void map(const std::filesystem::path& file);

  file_state state_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace troupe
