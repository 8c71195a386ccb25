// Packed weights on disk: a later start maps them instead of packing the checkpoint again, and weights that do not fit
// in memory stay there. One object serves one load, on its thread; the memory it lends outlives it and may be used on
// any thread. The files are described in packed_layout.hpp.
#pragma once

#include "kernels/cpu/memory.hpp"
#include "runtime/checkpoint/packed/packed_file.hpp"
#include "runtime/checkpoint/packed/packed_layout.hpp"
#include "runtime/support/log_line.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class atomic_file;

/// Where a loaded matrix is.
enum class weight_home : std::uint8_t {
  found,  // in the file if that is there, else in memory
  memory, // which only this process can free
  file,   // mapped: the system may free its memory, and reads it again
};

struct packed_cache_options {
  std::filesystem::path folder;
  std::size_t most_bytes = 0; // of all files in the folder; 0: a tenth of the file system
  bool asked = true;          // by name: small models are kept, too, and what stands in the way is said
  std::function<weight_home(std::string_view matrix)> home = {}; // none: found
  bool needed = false;                                           // some are to be in the file
};

class packed_cache {
public:
  /// Looks in the folder, which is created, for a file with these contents; if there is none, begins one. A file that
  /// cannot be read or written is not an error unless it is needed: weights are then packed as without a cache, and
  /// `log` receives the reason, now or later. Throws failure(bad_request) if the folder is not one, and
  /// failure(out_of_memory) without a file that is needed.
  packed_cache(packed_cache_options options, const packed_contents& contents, kernels::thread_pool& pool, log_sink log);
  ~packed_cache();
  packed_cache(const packed_cache&) = delete;
  packed_cache& operator=(const packed_cache&) = delete;

  /// The packed bytes of matrix `name`, read-only, aligned to 64 bytes, at their home. Null if it has to be packed.
  /// Throws as packed_file::read.
  kernels::buffer find(std::string_view name);

  /// Adds a matrix that `find` did not have. `parts` together have the size stated in the contents. Returns its bytes
  /// at their home; null if `parts` may stay where they are.
  kernels::buffer add(std::string_view name, std::span<const std::span<const std::byte>> parts);

  /// Call after all matrices were found or added. Waits for the disk if the file was asked for or is needed; if not, a
  /// thread does, which what is returned waits for when it is dropped.
  std::shared_ptr<const void> finish();

  /// Whether a matrix that was found or added is in the file.
  bool is_mapped(std::string_view name) const { return mapped_.contains(name); }

  /// The file that some matrices are mapped from; null if there is none.
  std::shared_ptr<const packed_file> file() const { return mapped_.empty() ? nullptr : kept_; }

  const std::filesystem::path& name() const { return file_; }

private:
  weight_home home_of(std::string_view name) const;
  void open(const own_folder& folder);
  void begin(const own_folder& folder, const packed_contents& contents);
  void give_up(const std::string& why);
  kernels::buffer copy_of(std::span<const std::span<const std::byte>> parts);

  packed_cache_options options_;
  kernels::thread_pool& pool_;
  log_sink log_;
  std::filesystem::path file_;
  std::shared_ptr<const packed_layout> layout_; // null: nothing is kept
  std::vector<std::uint64_t> sums_;             // of the blocks of the matrices added
  std::shared_ptr<packed_file> kept_;           // found, or being written and mapped at the same time
  std::unique_ptr<atomic_file> writing_;
  kernels::weight_memory memory_; // of matrices that were found and are not mapped
  std::size_t added_ = 0;
  std::set<std::string, std::less<>> mapped_; // matrices
};

} // namespace troupe
