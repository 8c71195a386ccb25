// Keeps blocks of K and V, and states behind them, in files that outlive the process. It is a cache and may lose anything
// at any time. Each is a file: what it is (key, tokens, numerics, version), its bytes in canonical form, and a checksum over both.
// A file is written under another name and renamed into place. It is never flushed by force: what a loss of power
// damages is noticed and computed again. When the folder has reached its size, the least recently used files go first,
// and the end of a chain goes before its beginning.
//
// Several processes may share a folder, also those of different models. Nothing is locked, and what another one removes
// is a miss. Folders and files are this user's (own_folder.hpp says what that keeps out), and checksums are under the
// folder's secret. Nothing in a file is trusted before its checksum was checked, and then only what was asked for. Any
// thread.
#pragma once

#include "runtime/kv/kv_store_counters.hpp"
#include "runtime/kv/numerics_id.hpp"
#include "runtime/scheduling/block_image.hpp"
#include "runtime/support/files/own_folder.hpp"
#include "runtime/support/log_line.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace troupe {

struct kv_store_options {
  std::filesystem::path folder;
  std::size_t most_bytes = std::size_t(16) << 30; // of the files of all who share the folder
};

class kv_store {
public:
  /// Makes the folder (0700), unless it is there, and the secret in it. Null if that fails or the folder is not ours,
  /// after `log` received why: the server goes on without. Throws failure(bad_request) if `folder` is something else than a folder. `log` is
  /// called by this function alone. `block_bytes`: of each block.
  static std::unique_ptr<kv_store> open(kv_store_options options, const numerics_id& id, std::size_t block_bytes,
                                        const log_sink& log);

  /// Makes the keys of blocks in this folder.
  const block_keys& keys() const { return keys_; }
  std::size_t block_bytes() const { return block_bytes_; }

  /// Whether there is a file of this key.
  bool contains(const block_key& key) const;

  enum class outcome : std::uint8_t { found, absent, damaged };

  /// Reads the block with the key and tokens of `image` into its bytes, and counts it as used.
  outcome read(block_image& image);

  /// Keeps a block, unless it is kept already. False if the disk refuses.
  bool write(const block_image& image);

  /// A sentence on why blocks cannot be kept, once.
  std::optional<std::string> take_trouble();

  kv_store_counters counters() const;

  /// The file of a block, for tests.
  std::filesystem::path file_of(const block_key& key) const;

private:
  kv_store(own_folder folder, std::size_t most_bytes, const numerics_id& id, std::size_t block_bytes,
           const own_folder::secret_bytes& secret);

  struct head;
  head head_of(const block_image& image) const;
  void touch(int descriptor, std::int32_t place) const;
  void trouble(const std::string& what, int error);
  void trim(std::size_t most);

  own_folder folder_;
  std::size_t most_bytes_;
  std::array<std::uint64_t, 2> numerics_;
  std::optional<own_folder> own_; // of these numerics; none if it cannot be made
  std::size_t block_bytes_;
  own_folder::secret_bytes secret_; // of checksums
  block_keys keys_;
  std::mutex trimming_, telling_;
  std::optional<std::string> trouble_;
  bool told_ = false;
  std::atomic<std::int64_t> closed_until_{0}; // nothing is written before; of steady_clock
  std::atomic<std::uint64_t> files_made_{0};
  std::atomic<std::uint64_t> bytes_{0}, read_{0}, damaged_{0}, written_{0}, unwritten_{0}, removed_{0};
};

} // namespace troupe
