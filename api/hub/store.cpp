#include "api/hub/store.hpp"

#include "runtime/import/hub_cache.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/atomic_file.hpp"
#include "runtime/support/files/own_folder.hpp"
#include "runtime/support/text/byte_size.hpp"

#include <array>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe::hub {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_at(const fs::path& path, int error) {
  throw failure(errc::bad_file, path.string() + ": cannot be written: " + std::generic_category().message(error));
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail_at(folder, error.value());
}

/// A name beside `path` that no other process uses.
fs::path beside(const fs::path& path) {
  return path.parent_path() / ("." + path.filename().string() + "." + std::to_string(getpid()));
}

void write_in_folder(const fs::path& file, std::string_view text) {
  make_folders(file.parent_path());
  write_file(file, text); // or another process does
}

/// What this user wrote earlier, or a new file in the place of anything else.
descriptor open_partial(const fs::path& file) {
  for (const bool again : {true, false}) {
    descriptor opened(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (opened && is_unshared_file(opened))
      return opened;
    const int why = opened ? EPERM : errno;
    if (!again || unlink(file.c_str()) != 0)
      fail_at(file, why);
  }
  return {};
}

} // namespace

partial_blob::partial_blob(fs::path partial, fs::path blob)
  : partial_(std::move(partial)), blob_(std::move(blob)), opened_(open_partial(partial_)) {
  struct stat state = {};
  if (fstat(opened_.get(), &state) != 0)
    fail_at(partial_, errno);
  size_ = static_cast<std::uint64_t>(state.st_size);
}

void partial_blob::fail(int error) const {
  if (error == ENOSPC || error == EDQUOT)
    throw failure(errc::bad_file,
                  blob_.parent_path().string() + ": the disk is full; " + to_size(size_) +
                    " of the file are kept, and the next pull goes on from there");
  fail_at(partial_, error);
}

void partial_blob::read(const std::function<void(std::string_view)>& to) const {
  const auto piece = std::make_unique<std::array<char, 1 << 20>>();
  for (std::uint64_t at = 0; at < size_;) {
    const auto got = pread(opened_.get(), piece->data(), piece->size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      fail(got < 0 ? errno : EIO);
    to({piece->data(), static_cast<std::size_t>(got)});
    at += static_cast<std::uint64_t>(got);
  }
}

void partial_blob::append(std::string_view bytes) {
  // Writes at offsets: if locks do not work and another process writes the same blob, both write the same bytes.
  while (!bytes.empty()) {
    const auto put = pwrite(opened_.get(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (put < 0 && errno == EINTR)
      continue;
    if (put <= 0)
      fail(put < 0 ? errno : EIO);
    bytes.remove_prefix(static_cast<std::size_t>(put));
    size_ += static_cast<std::uint64_t>(put);
  }
}

void partial_blob::clear() {
  if (ftruncate(opened_.get(), 0) != 0)
    fail(errno);
  size_ = 0;
}

void partial_blob::commit() {
  if (fsync(opened_.get()) != 0 || rename(partial_.c_str(), blob_.c_str()) != 0)
    fail(errno);
}

repository_store::repository_store(const fs::path& cache, const std::string& id, std::string commit)
  : cache_(cache), folder_(cache / hub_repository_of(id)), commit_(std::move(commit)) {
  make_folders(folder_ / "blobs");
  make_folders(version());
  if (std::error_code ignored; !fs::exists(cache_ / "CACHEDIR.TAG", ignored))
    write_in_folder(cache_ / "CACHEDIR.TAG",
                    "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of models of the Hugging Face hub.\n");
}

std::shared_ptr<void> repository_store::lock(const std::string& checksum, const std::function<void()>& waits) const {
  const auto file = cache_ / ".locks" / folder_.filename() / (checksum + ".lock");
  make_folders(file.parent_path());
  int opened = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (opened < 0 && errno == EACCES) // another user's, which can be locked all the same
    opened = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (opened < 0)
    fail_at(file, errno);
  std::shared_ptr<void> held(nullptr, [opened](void*) { close(opened); });
  if (flock(opened, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    waits();
    while (flock(opened, LOCK_EX) != 0 && errno == EINTR)
      ;
  }
  return held;
}

std::uint64_t repository_store::space() const {
  std::error_code error;
  const auto space = fs::space(folder_, error);
  return error ? UINT64_MAX : space.available;
}

std::unique_ptr<partial_blob> repository_store::begin(const std::string& checksum) const {
  // A name of its own: other programs' partial files may have holes.
  return std::make_unique<partial_blob>(blob(checksum + ".troupe.incomplete"), blob(checksum));
}

void repository_store::link(const std::string& path, const std::string& checksum) const {
  const auto at = version() / path;
  make_folders(at.parent_path());
  const auto to = blob(checksum).lexically_relative(at.parent_path());
  std::error_code error;
  if (fs::is_symlink(at, error) && fs::read_symlink(at, error) == to)
    return;
  const auto fresh = beside(at);
  unlink(fresh.c_str());
  fs::create_symlink(to, fresh, error);
  if (!error)
    fs::rename(fresh, at, error);
  if (error) {
    unlink(fresh.c_str());
    fail_at(at, error.value());
  }
}

void repository_store::name_version(const std::string& name) const {
  if (name != commit_)
    write_in_folder(folder_ / "refs" / name, commit_);
}

} // namespace troupe::hub
