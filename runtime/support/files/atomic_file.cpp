#include "runtime/support/files/atomic_file.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/own_folder.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace troupe {

std::unique_ptr<atomic_file> atomic_file::begin(const std::filesystem::path& file, std::size_t bytes) {
  const auto beside = file.parent_path() / ("." + file.filename().string() + ".troupe-partial");
  struct stat there {};
  if (stat(file.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    throw failure(errc::bad_file, file.string() + ": cannot be written: it is there, and not a regular file");
  for (;;) {
    std::unique_ptr<atomic_file> begun(new atomic_file(file, beside));
    auto& opened = begun->opened_;
    opened = troupe::descriptor(open(beside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
    if (!opened)
      begun->fail(errno);
    if (!try_lock(opened)) {
      if (errno == EWOULDBLOCK)
        return nullptr;
      begun->fail(errno);
    }
    if (!is_called(opened.get(), beside)) // the previous holder has renamed or removed it
      continue;
    if (!is_unshared_file(opened))
      throw failure(errc::bad_file,
                    beside.string() + " is in the way: it is not a file of this user's alone; remove it");
    begun->owned_ = true;
    const auto size = static_cast<off_t>(bytes);
    if (ftruncate(opened.get(), 0) != 0 || ftruncate(opened.get(), size) != 0)
      begun->fail(errno);
    if (size > 0 && fallocate(opened.get(), 0, 0, size) != 0 && (errno == ENOSPC || errno == EDQUOT))
      begun->fail(errno);
    return begun;
  }
}

atomic_file::~atomic_file() {
  if (owned_)
    unlink(beside_.c_str());
}

void atomic_file::write(std::size_t offset, std::span<const std::byte> bytes) {
  const auto begin = static_cast<off_t>(offset), size = static_cast<off_t>(bytes.size());
  while (!bytes.empty()) {
    const auto written = pwrite(opened_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno != EINTR)
      fail(errno);
    if (written > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::size_t>(written);
    }
  }
  sync_file_range(opened_.get(), begin, size, SYNC_FILE_RANGE_WRITE); // a hint
}

void atomic_file::commit() {
  if (fsync(opened_.get()) != 0 || rename(beside_.c_str(), file_.c_str()) != 0)
    fail(errno);
  owned_ = false;
  const auto folder = file_.has_parent_path() ? file_.parent_path() : std::filesystem::path(".");
  if (const troupe::descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); opened)
    fsync(opened.get()); // otherwise the old file may reappear after a crash
}

bool write_file(const std::filesystem::path& file, std::string_view content) {
  const auto out = atomic_file::begin(file, content.size());
  if (!out)
    return false;
  out->write(0, std::as_bytes(std::span(content)));
  out->commit();
  return true;
}

void atomic_file::fail(int error) const {
  throw failure(errc::bad_file, file_.string() + ": cannot be written: " + std::generic_category().message(error));
}

} // namespace troupe
