// Packed weights on disk, which a later start maps instead of packing a checkpoint again. Made for one load, and used by
// its thread; the memory it lends outlives it and is for any thread.
//
// A file begins with text that says what it was made of; then come a checksum for each matrix, and each matrix as a
// backend packed it, from a multiple of 4 KiB on. All of that text, sizes included, follows from the model and the
// options, so it is compared and nothing in it is believed; the bytes of the matrices must have their checksums.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/support/file_state.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

namespace kernels {
class thread_pool;
}

class atomic_file;
class mapped_file;

/// Hears what should be told of a load, a line each.
using log_sink = std::function<void(std::string)>;

struct packed_entry {
  std::string name;      // of its first tensor
  std::size_t bytes = 0; // as packed
};

/// What packed weights follow from. Two that differ in `model`, `numbers`, `target` or the paths of the files are kept
/// in files of their own; else the later replaces the earlier.
struct packed_contents {
  std::string model;     // its name
  std::string precision; // types: "bf16 int8"
  std::string target;    // of the kernels
  int layout = 0;        // its version
  std::vector<file_state> files;
  std::vector<packed_entry> matrices;
};

class packed_cache {
public:
  /// Looks into `folder`, which is created, for a file of these contents, which `pool` reads and checks; where there is
  /// none, begins one. `say` hears here and later, in a line each, what becomes of that, and why: a file that cannot be
  /// read or written is no error, weights are then packed as if there were no cache. Throws failure(bad_request) where
  /// `folder` is no folder.
  packed_cache(const std::filesystem::path& folder, const packed_contents& contents, kernels::thread_pool& pool,
               log_sink say);
  ~packed_cache();
  packed_cache(const packed_cache&) = delete;
  packed_cache& operator=(const packed_cache&) = delete;

  /// The matrix `name` of the contents: its packed bytes, aligned to 4 KiB, to be read only. Null where it has to be
  /// packed.
  kernels::buffer find(std::string_view name);

  /// Keeps what was packed because `find` found nothing. `parts` have the bytes that the contents say.
  void add(std::string_view name, std::span<const std::span<const std::byte>> parts);

  /// To be called when all matrices have been found or added. Waits for the disk.
  void finish();

  const std::filesystem::path& file() const { return file_; }

private:
  struct place {
    std::size_t offset = 0, bytes = 0, index = 0; // `index`: among the checksums
  };

  void lay_out(const packed_contents& contents);
  std::string open(kernels::thread_pool& pool);
  std::string difference() const;
  std::string damage(kernels::thread_pool& pool) const;
  void begin();
  place place_of(std::string_view name) const;

  log_sink say_;
  std::filesystem::path file_;
  std::string head_; // padded with zeros
  std::map<std::string, place, std::less<>> places_;
  std::vector<std::uint64_t> sums_; // of the matrices that were added; in the file, after the head
  std::size_t bytes_ = 0;           // of the file
  std::shared_ptr<const mapped_file> kept_;
  std::unique_ptr<atomic_file> writing_;
  std::size_t added_ = 0;
};

} // namespace troupe
