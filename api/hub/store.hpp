// One repository in the cache of Hugging Face's programs, for writing: blobs by their checksums, versions as links to
// them, names of versions. Other programs may use the cache at the same time. One thread.
#pragma once

#include "runtime/support/files/descriptor.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace troupe::hub {

/// A blob on its way into a cache: a file of this user's. What has been written is kept when it is destroyed, for the next try.
class partial_blob {
public:
  partial_blob(std::filesystem::path partial, std::filesystem::path blob);
  partial_blob(const partial_blob&) = delete;
  partial_blob& operator=(const partial_blob&) = delete;

  std::uint64_t size() const { return size_; }
  /// Passes on all that there is.
  void read(const std::function<void(std::string_view)>& to) const;
  /// At the end. Throws failure(bad_file) that says how much is kept where the disk is full.
  void append(std::string_view bytes);
  void clear();
  /// Makes it a blob of the cache.
  void commit();

private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path partial_, blob_;
  descriptor opened_;
  std::uint64_t size_ = 0;
};

class repository_store {
public:
  /// Opens the repository `id` in `cache`, and makes its folders. Throws failure(bad_file).
  repository_store(const std::filesystem::path& cache, const std::string& id, std::string commit);

  std::filesystem::path version() const { return folder_ / "snapshots" / commit_; }
  std::filesystem::path blob(const std::string& checksum) const { return folder_ / "blobs" / checksum; }

  /// Holds the lock that Hugging Face's programs use for this blob as long as it lives. Calls `waits` before it waits
  /// for another program. File systems without locks make it hold nothing, which costs no more than double work.
  std::shared_ptr<void> lock(const std::string& checksum, const std::function<void()>& waits) const;

  /// Bytes that are left for it on the disk.
  std::uint64_t space() const;

  std::unique_ptr<partial_blob> begin(const std::string& checksum) const;

  /// Makes `path` of the version lead to the blob.
  void link(const std::string& path, const std::string& checksum) const;

  /// Makes `name` ("main") mean the version.
  void name_version(const std::string& name) const;

private:
  std::filesystem::path cache_, folder_;
  std::string commit_;
};

} // namespace troupe::hub
