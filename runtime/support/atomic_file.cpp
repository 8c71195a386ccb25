#include "runtime/support/atomic_file.hpp"

#include "runtime/support/error.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace troupe {

namespace {

/// Acquires a lock that ends with the process. False if another process holds it.
bool lock(int descriptor) {
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR)
      return false;
  return true;
}

bool is_named(int descriptor, const std::filesystem::path& file) {
  struct stat opened {
  }, named{};
  return fstat(descriptor, &opened) == 0 && lstat(file.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
    opened.st_dev == named.st_dev;
}

} // namespace

std::unique_ptr<atomic_file> atomic_file::begin(const std::filesystem::path& file, std::size_t bytes) {
  const auto beside = file.parent_path() / ("." + file.filename().string() + ".troupe-partial");
  for (;;) {
    const int opened = open(beside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    std::unique_ptr<atomic_file> begun(new atomic_file(file, beside, opened));
    if (opened < 0)
      begun->fail(errno);
    if (!lock(opened)) {
      if (errno == EWOULDBLOCK)
        return nullptr;
      begun->fail(errno);
    }
    if (!is_named(opened, beside)) // the previous holder has renamed or removed it
      continue;
    begun->owned_ = true;
    const auto size = static_cast<off_t>(bytes);
    if (ftruncate(opened, 0) != 0 || ftruncate(opened, size) != 0)
      begun->fail(errno);
    if (size > 0 && fallocate(opened, 0, 0, size) != 0 && (errno == ENOSPC || errno == EDQUOT))
      begun->fail(errno);
    return begun;
  }
}

atomic_file::~atomic_file() {
  if (owned_)
    unlink(beside_.c_str());
  if (descriptor_ >= 0)
    close(descriptor_);
}

void atomic_file::write(std::size_t offset, std::span<const std::byte> bytes) {
  const auto begin = static_cast<off_t>(offset), size = static_cast<off_t>(bytes.size());
  while (!bytes.empty()) {
    const auto written = pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno != EINTR)
      fail(errno);
    if (written > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::size_t>(written);
    }
  }
  sync_file_range(descriptor_, begin, size, SYNC_FILE_RANGE_WRITE); // a hint
}

void atomic_file::commit() {
  if (fsync(descriptor_) != 0 || rename(beside_.c_str(), file_.c_str()) != 0)
    fail(errno);
  owned_ = false;
  const auto folder = file_.has_parent_path() ? file_.parent_path() : std::filesystem::path(".");
  if (const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); opened >= 0) {
    fsync(opened); // otherwise the old file may reappear after a crash
    close(opened);
  }
}

void atomic_file::fail(int error) const {
  throw failure(errc::bad_file, file_.string() + ": cannot be written: " + std::generic_category().message(error));
}

} // namespace troupe
