#include "runtime/mapped_file.hpp"

#include "runtime/error.hpp"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace troupe {

namespace {

struct descriptor {
  int fd = -1;
  ~descriptor() {
    if (fd >= 0)
      close(fd);
  }
};

[[noreturn]] void fail(errc code, const std::filesystem::path& file, const char* what, int error) {
  throw failure(code, file.string() + ": " + what + ": " + std::generic_category().message(error));
}

} // namespace

mapped_file::mapped_file(const std::filesystem::path& file) {
  // O_NONBLOCK: opening a named pipe by mistake must not wait for a writer.
  descriptor d{open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (d.fd < 0)
    fail(errno == ENOENT ? errc::not_found : errc::bad_file, file, "cannot be opened", errno);
  struct stat info {};
  if (fstat(d.fd, &info) != 0)
    fail(errc::bad_file, file, "cannot be read", errno);
  if (!S_ISREG(info.st_mode))
    throw failure(errc::bad_file, file.string() + ": is not a regular file");
  state_ = state_of(file, d.fd);
  if (info.st_size == 0)
    return;
  void* mapped = mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, d.fd, 0);
  if (mapped == MAP_FAILED)
    fail(errno == ENOMEM ? errc::out_of_memory : errc::bad_file, file, "cannot be mapped into memory", errno);
  data_ = static_cast<const std::byte*>(mapped);
  size_ = static_cast<std::size_t>(info.st_size);
}

mapped_file::~mapped_file() {
  if (data_)
    munmap(const_cast<std::byte*>(data_), size_);
}

// Hints: refusing them changes nothing but memory use and time.
void mapped_file::prefetch(std::span<const std::byte> part) const noexcept { advise(part, MADV_WILLNEED); }

bool mapped_file::populate(std::span<const std::byte> part) const noexcept {
  return advise(part, MADV_POPULATE_READ) || errno == EINVAL; // before Linux 5.14 it is read when it is used
}

void mapped_file::release(std::span<const std::byte> part) const noexcept { advise(part, MADV_DONTNEED); }

bool mapped_file::advise(std::span<const std::byte> part, int advice) const noexcept {
  if (part.empty())
    return true;
  // Rounded outwards: the pages are clean, so dropping one that a neighbour shares costs a reread at most.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size());
  return madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0;
}

} // namespace troupe
