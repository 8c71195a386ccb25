// A whole file mapped read-only into memory. Owned by checkpoints, which hand out parts of it; any number of threads
// read it.
#pragma once

#include "runtime/support/file_state.hpp"

#include <cstddef>
#include <filesystem>
#include <span>

namespace troupe {

class mapped_file {
public:
  /// Maps `file`. Throws failure(not_found | bad_file | out_of_memory) naming it.
  explicit mapped_file(const std::filesystem::path& file);
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

private:
  bool advise(std::span<const std::byte> part, int advice) const noexcept;

  file_state state_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace troupe
