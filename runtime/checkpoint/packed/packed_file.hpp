// A file of packed weights in use: mapped, and each block compared with its checksum when it is first read. What it
// lends keeps it alive. Any number of threads use it; `read` wants a pool of its caller's.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/checkpoint/packed/packed_layout.hpp"
#include "runtime/support/files/mapped_file.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

namespace kernels {
class thread_pool;
}

class packed_file : public std::enable_shared_from_this<packed_file> {
public:
  /// Null, and `why`, if the file is not there (then `why` is empty), not ours or not as expected.
  static std::shared_ptr<packed_file> open(const own_folder& folder, const std::string& name,
                                           std::shared_ptr<const packed_layout> layout, std::string& why);

  /// Makes it of a mapped file, which is called `file`, now or soon. Without `sums`, `finish` gives them before the
  /// first `read`.
  packed_file(std::filesystem::path file, std::shared_ptr<const packed_layout> layout,
              std::unique_ptr<const mapped_file> map, std::vector<std::uint64_t> sums);

  void finish(std::vector<std::uint64_t> sums) { sums_ = std::move(sums); }

  const std::filesystem::path& name() const { return file_; }
  const packed_layout& layout() const { return *layout_; }

  /// The bytes of a matrix, read-only, aligned to 4 KiB.
  kernels::buffer lend(const packed_place& place);

  /// Reads and maps the pages of some matrices, and compares the blocks that were not read before with their checksums.
  /// Throws failure(bad_file) for a damaged block, having removed the file, and if the file cannot be read.
  void read(std::span<const packed_place> places, kernels::thread_pool& pool) const;

  /// Whether `read` has compared all blocks of a matrix.
  bool was_read(const packed_place& place) const;

  // Like those of mapped_file.
  void prefetch(const packed_place& place) const noexcept { map_->prefetch(bytes_of(place)); }
  bool populate(const packed_place& place) const noexcept { return map_->populate(bytes_of(place)); }
  void release(const packed_place& place) const noexcept { map_->release(bytes_of(place)); }
  void drop(const packed_place& place) const noexcept { map_->drop(bytes_of(place)); }
  bool is_in_memory(const packed_place& place) const noexcept { return map_->is_in_memory(bytes_of(place)); }
  std::size_t missing_bytes(const packed_place& place) const noexcept { return map_->missing_bytes(bytes_of(place)); }

  /// "FILE can no longer be read".
  [[noreturn]] void refuse_reading() const;

  /// Throws failure(bad_file) if the file was truncated.
  void require_whole() const;

private:
  std::span<const std::byte> bytes_of(const packed_place& place) const {
    return map_->bytes().subspan(place.offset, place.bytes);
  }

  [[noreturn]] void refuse_damage(std::size_t block) const;

  std::filesystem::path file_;
  std::shared_ptr<const packed_layout> layout_;
  std::unique_ptr<const mapped_file> map_;
  std::vector<std::uint64_t> sums_;                       // of the blocks
  std::unique_ptr<std::atomic<std::uint8_t>[]> compared_; // [blocks]
};

} // namespace troupe
