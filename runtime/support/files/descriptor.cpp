#include "runtime/support/files/descriptor.hpp"

#include <cerrno>
#include <sys/file.h>
#include <sys/stat.h>

namespace troupe {

bool read_whole(const descriptor& from, void* to, std::size_t bytes) {
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    errno = 0;
    const auto got = ::read(from.get(), at, bytes);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_whole(const descriptor& to, const void* from, std::size_t bytes) {
  for (auto* at = static_cast<const char*>(from); bytes > 0;) {
    const auto put = ::write(to.get(), at, bytes);
    if (put < 0 && errno == EINTR)
      continue;
    if (put <= 0)
      return false;
    at += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

bool try_lock(const descriptor& opened) {
  while (flock(opened.get(), LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR)
      return false;
  return true;
}

bool is_called(int opened, const std::filesystem::path& name) {
  struct stat own {
  }, named{};
  return fstat(opened, &own) == 0 && lstat(name.c_str(), &named) == 0 && own.st_ino == named.st_ino &&
    own.st_dev == named.st_dev;
}

} // namespace troupe
