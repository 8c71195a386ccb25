// Packed weights on disk: a later start maps them instead of packing the checkpoint again. One object serves one load,
// on its thread; the memory it lends outlives it and may be used on any thread.
//
// A file begins with a text that describes its origin, followed by a checksum per matrix and the matrices as the
// backend packed them, each at a multiple of 4 KiB. The text, sizes included, follows from the model and the options,
// so it is compared with the expected text and never parsed; the matrices must match their checksums.
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

/// Receives log lines of a load.
using log_sink = std::function<void(std::string)>;

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
};

class packed_cache {
public:
  /// Looks in `folder`, which is created, for a file with these contents, read and checked by `pool`; if there is none,
  /// begins one. A file that cannot be read or written is not an error: weights are then packed as without a cache, and
  /// `log` receives the reason, now or later. Throws failure(bad_request) if `folder` is not a folder.
  packed_cache(const std::filesystem::path& folder, const packed_contents& contents, kernels::thread_pool& pool,
               log_sink log);
  ~packed_cache();
  packed_cache(const packed_cache&) = delete;
  packed_cache& operator=(const packed_cache&) = delete;

  /// The packed bytes of matrix `name`, read-only, aligned to 4 KiB. Null if it has to be packed.
  kernels::buffer find(std::string_view name);

  /// Adds a matrix that `find` did not have. `parts` together have the size stated in the contents.
  void add(std::string_view name, std::span<const std::span<const std::byte>> parts);

  /// Call after all matrices were found or added. Waits for the disk.
  void finish();

  const std::filesystem::path& file() const { return file_; }

private:
  struct place {
    std::size_t offset = 0, bytes = 0, index = 0; // `index`: of the checksum
  };

  void lay_out(const packed_contents& contents);
  std::string open(kernels::thread_pool& pool);
  std::string difference() const;
  std::string damage(kernels::thread_pool& pool) const;
  void begin();
  place place_of(std::string_view name) const;

  log_sink log_;
  std::filesystem::path file_;
  std::string head_; // padded with zeros
  std::map<std::string, place, std::less<>> places_;
  std::vector<std::uint64_t> sums_; // checksums of the matrices added; they follow the head in the file
  std::size_t bytes_ = 0;           // of the whole file
  std::shared_ptr<const mapped_file> kept_;
  std::unique_ptr<atomic_file> writing_;
  std::size_t added_ = 0;
};

} // namespace troupe
