// A file that appears under its name whole or not at all, whenever a process or the machine stops: it is written beside
// its place, flushed to the disk and renamed. Of several that write the same file, in whatever processes, the first does.
// Used by one thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace troupe {

class atomic_file {
public:
  /// Begins `file`, which will have `bytes` bytes, zeros where nothing is written; they are reserved where the file
  /// system can do that. What a process that died has left (".FILE.troupe-partial") is overwritten. Null where another
  /// is writing the file. Throws failure(bad_file) naming the file.
  static std::unique_ptr<atomic_file> begin(const std::filesystem::path& file, std::size_t bytes);

  /// Without `commit`, nothing remains.
  ~atomic_file();
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;

  /// Its way to the disk starts at once. Throws as `begin`.
  void write(std::size_t offset, std::span<const std::byte> bytes);

  /// Puts the file in its place, once the disk has all of it. Throws as `begin`.
  void commit();

private:
  atomic_file(std::filesystem::path file, std::filesystem::path beside, int descriptor)
    : file_(std::move(file)), beside_(std::move(beside)), descriptor_(descriptor) {}

  [[noreturn]] void fail(int error) const;

  std::filesystem::path file_, beside_;
  int descriptor_;     // holds the lock that keeps others from writing `beside_`
  bool owned_ = false; // `beside_`
};

} // namespace troupe
