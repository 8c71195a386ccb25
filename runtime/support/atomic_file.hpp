// Writes a file that appears under its name whole or not at all, even if the process or the machine stops: it is
// written under a temporary name, flushed to disk and renamed. If several processes write the same file, the first one
// wins. Used by one thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace troupe {

class atomic_file {
public:
  /// Begins `file` with `bytes` bytes, zeros until written; their space is reserved if the file system can do that. The
  /// leftovers of a process that died (".FILE.troupe-partial") are overwritten. Null if another writer holds the file.
  /// Throws failure(bad_file) naming the file.
  static std::unique_ptr<atomic_file> begin(const std::filesystem::path& file, std::size_t bytes);

  /// Removes the temporary file unless committed.
  ~atomic_file();
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;

  /// Starts writing back to disk at once. Throws as `begin`.
  void write(std::size_t offset, std::span<const std::byte> bytes);

  /// Of the file while it is written, under another name; for mapping it.
  int descriptor() const { return descriptor_; }

  /// Flushes the file to disk and renames it into place. Throws as `begin`.
  void commit();

private:
  atomic_file(std::filesystem::path file, std::filesystem::path beside, int descriptor)
    : file_(std::move(file)), beside_(std::move(beside)), descriptor_(descriptor) {}

  [[noreturn]] void fail(int error) const;

  std::filesystem::path file_, beside_;
  int descriptor_;     // holds the lock on `beside_`
  bool owned_ = false; // this process created `beside_`
};

} // namespace troupe
