// Files and folders of ours: what caches keep and what is half written. They are later believed, overwritten and
// removed without a question, so we must know who made them. A folder of ours belongs to this user or to root, and not
// everybody may write to it. It is held open, so that nobody can redirect what is opened below it. A file of ours is
// regular, belongs to one of these two users, and only they may write to it; it is never reached through a link.
//
// This keeps out what other users plant. `secret` is for checksums: they also expose files that somebody could put into
// the folder without being able to read the secret (a copy from another machine, a share without owners). Nothing here
// helps against somebody who reads and writes all that this user does. Any thread.
#pragma once

#include "runtime/support/files/descriptor.hpp"

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class own_folder {
public:
  using secret_bytes = std::array<std::byte, 192>;

  /// Opens `folder`, which is made for its owner alone (0700) if there is none, as are those above it, for whom they
  /// usually are. Throws failure(bad_request) if it is something else than a folder, and failure(bad_file) if it cannot
  /// be opened, belongs to somebody else or may be written to by everybody.
  explicit own_folder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  int get() const { return opened_.get(); }

  /// A folder in it that is this user's alone, made if there is none and `make`. Null otherwise: errno says why, EPERM
  /// that it is not ours.
  std::optional<own_folder> within(const std::string& name, bool make) const;

  /// A file of ours in it, for reading; `name` may lie in folders that are this user's alone. None if there is none:
  /// ENOENT; or if it is not ours: EPERM or ELOOP.
  descriptor open(const std::string& name) const;

  /// A new file for its owner alone (0600), for writing. None with errno if it cannot be made, EEXIST if it is there.
  descriptor create(const std::string& name) const;

  /// False with errno.
  bool remove(const std::string& name) const;

  std::vector<std::string> names() const;

  /// What is in the file `secret`, which only this user can read: random numbers. It is made if there is none, and
  /// again if it is damaged. If another process is faster, its is taken. Throws failure(bad_file).
  secret_bytes secret() const;

private:
  own_folder(std::filesystem::path path, descriptor opened) : path_(std::move(path)), opened_(std::move(opened)) {}

  std::filesystem::path path_;
  descriptor opened_;
};

/// Whether what is open is a regular file of ours, which can be believed. Sets errno to EPERM if not.
bool is_own_file(const descriptor& opened);

/// Whether it can be written to: a regular file of this user's, which has one name only.
bool is_unshared_file(const descriptor& opened);

} // namespace troupe
