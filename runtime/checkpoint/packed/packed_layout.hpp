// What a file of packed weights looks like. It begins with a text that describes its origin, followed by a checksum for
// each block of 1 MiB of each matrix, a checksum of these, and the matrices as the backend packed them, each at a
// multiple of 4 KiB. All of that, sizes included, follows from the model and the options, so the text is compared with
// the expected one and never parsed. Checksums are under the folder's secret. Plain data.
#pragma once

#include "runtime/support/files/checksum.hpp"
#include "runtime/support/files/file_state.hpp"
#include "runtime/support/files/own_folder.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What a file begins with, in any version.
inline constexpr std::string_view packed_mark = "troupe packed weights ";

struct packed_entry {
  std::string name;      // the first tensor's
  std::size_t bytes = 0; // as packed
};

/// Everything that packed weights depend on. Contents that differ in `precision`, `target` or the files' paths are kept
/// side by side; otherwise the newer file replaces the older.
struct packed_contents {
  std::string model;     // its name, for the file's
  std::string precision; // "bf16 int8": activations, weights
  std::string target;    // instruction set of the kernels
  int layout = 0;        // version of the packed layout
  std::vector<file_state> files;
  std::vector<packed_entry> matrices;

  std::size_t bytes() const;
};

/// Where a matrix is in the file.
struct packed_place {
  std::size_t offset = 0, bytes = 0;
  std::size_t first_block = 0; // of its checksums

  std::size_t blocks() const { return (bytes + checksum::chunk - 1) / checksum::chunk; }
};

class packed_layout {
public:
  /// Throws failure(internal) if two matrices have the same name.
  packed_layout(const packed_contents& contents, const own_folder::secret_bytes& secret);

  /// The checksum of a block, or of the checksums.
  std::uint64_t sum_of(std::span<const std::byte> bytes) const { return checksum::of_chunk(bytes, secret_); }

  const std::string& head() const { return head_; } // padded with zeros
  std::size_t blocks() const { return blocks_; }    // of all matrices
  std::size_t bytes() const { return bytes_; }      // of the whole file
  std::size_t matrices() const { return places_.size(); }

  /// Throws failure(internal) if there is no such matrix.
  packed_place place_of(std::string_view matrix) const;

  /// The matrix that a block belongs to, and the block's place in it.
  std::pair<std::string, std::size_t> matrix_of(std::size_t block) const;

  /// Compares a file's first bytes and its size with what is expected. Returns what differs; empty if nothing does.
  std::string difference(std::span<const std::byte> file) const;

  /// The blocks' checksums of a file without differences; nothing if they are damaged.
  std::vector<std::uint64_t> sums_of(std::span<const std::byte> file) const;

  /// The checksums as they stand in the file, behind the head.
  std::vector<std::uint64_t> sealed(std::vector<std::uint64_t> sums) const;

private:
  std::string head_;
  own_folder::secret_bytes secret_;
  std::map<std::string, packed_place, std::less<>> places_;
  std::size_t blocks_ = 0, bytes_ = 0;
};

/// "FOLDER/MODEL-0123456789abcdef.packed".
std::filesystem::path packed_file_name(const std::filesystem::path& folder, const packed_contents& contents);

} // namespace troupe
