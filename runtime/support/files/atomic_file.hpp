// Writes a file that appears under its name whole or not at all, even if the process or the machine stops. The file is
// written under a temporary name, flushed to disk and renamed. If several processes write the same file, the first one
// wins. The temporary file is a file of ours (own_folder.hpp) with one name: nobody else can have it open, or put
// another file in its place. Used by one thread.
#pragma once

#include "runtime/support/files/descriptor.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace troupe {

class atomic_file {
public:
  /// Begins `file` with `bytes` bytes, zeros until written; their space is reserved if the file system can do that. The
  /// leftovers of a process that died (".FILE.troupe-partial") are overwritten. Null if another writer holds the file.
  /// Throws failure(bad_file) naming the file, also where `file` is there and something else than a file.
  static std::unique_ptr<atomic_file> begin(const std::filesystem::path& file, std::size_t bytes);

  /// Removes the temporary file unless committed.
  ~atomic_file();
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;

  /// Starts writing back to disk at once. Throws as `begin`.
  void write(std::size_t offset, std::span<const std::byte> bytes);

  /// The descriptor of the file while it is written under another name; for mapping it.
  int descriptor() const { return opened_.get(); }

  /// Flushes the file to disk and renames it into place. Throws as `begin`.
  void commit();

private:
  atomic_file(std::filesystem::path file, std::filesystem::path beside)
    : file_(std::move(file)), beside_(std::move(beside)) {}

  [[noreturn]] void fail(int error) const;

  std::filesystem::path file_, beside_;
  troupe::descriptor opened_; // holds the lock on `beside_`
  bool owned_ = false;        // this process created `beside_`
};

/// A whole small file. False if another process is writing it. Throws as `atomic_file::begin`.
bool write_file(const std::filesystem::path& file, std::string_view content);

} // namespace troupe
