// A whole file mapped read-only into memory. Owned by checkpoints, which hand out parts of it; what is mapped is shared
// by any number of threads.
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

  /// When it was mapped.
  const file_state& state() const { return state_; }

  /// Asks the system to read the pages of `part` ahead.
  void prefetch(std::span<const std::byte> part) const noexcept;

  /// Reads the pages of `part` and maps them, so that using them does not wait. False where they cannot be read.
  bool populate(std::span<const std::byte> part) const noexcept;

  /// Gives the memory behind `part` back; touching it again reads it from the file once more.
  void release(std::span<const std::byte> part) const noexcept;

private:
  bool advise(std::span<const std::byte> part, int advice) const noexcept;

  file_state state_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace troupe
