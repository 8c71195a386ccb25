#include "runtime/support/files/mapped_file.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/descriptor.hpp"
#include "runtime/support/files/file_reading.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace troupe {

namespace {

/// Files begin at multiples of this in memory, so that the system can map its large pages as such.
constexpr std::uintptr_t large_page = std::uintptr_t(2) << 20;

std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

std::uintptr_t page_bytes() { return static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)); }

[[noreturn]] void refuse_mapping(const std::filesystem::path& file, int error) {
  throw failure(error == ENOMEM ? errc::out_of_memory : errc::bad_file,
                file.string() + ": cannot be mapped into memory: " + std::generic_category().message(error));
}

/// Maps all of a file at a multiple of large_page, if it is not small.
void* map_aligned(int descriptor, std::size_t bytes) {
  if (bytes < large_page)
    return mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  void* room = mmap(nullptr, bytes + large_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    return MAP_FAILED;
  const auto from = address_of(room), start = (from + large_page - 1) / large_page * large_page;
  void* mapped = mmap(reinterpret_cast<void*>(start), bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor, 0);
  const int error = errno;
  const auto end = mapped == MAP_FAILED ? start : (start + bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  if (start > from)
    munmap(room, start - from);
  munmap(reinterpret_cast<void*>(end), from + bytes + large_page - end);
  errno = error;
  return mapped;
}

} // namespace

mapped_file::mapped_file(const std::filesystem::path& file) {
  const regular_file opened(file);
  state_ = opened.state();
  descriptor_ = fcntl(opened.descriptor(), F_DUPFD_CLOEXEC, 0);
  map(file);
}

mapped_file::mapped_file(const std::filesystem::path& file, int descriptor)
  : state_(state_of(file, descriptor)), descriptor_(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {
  map(file);
}

void mapped_file::map(const std::filesystem::path& file) {
  if (descriptor_ < 0)
    refuse_mapping(file, errno);
  if (state_.bytes == 0)
    return;
  void* mapped = map_aligned(descriptor_, state_.bytes);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close(descriptor_);
    refuse_mapping(file, error);
  }
  data_ = static_cast<const std::byte*>(mapped);
  size_ = state_.bytes;
}

mapped_file::~mapped_file() {
  if (data_)
    munmap(const_cast<std::byte*>(data_), size_);
  close(descriptor_);
}

// Hints: a refusal affects only memory use and time.
void mapped_file::prefetch(std::span<const std::byte> part) const noexcept { advise(part, MADV_WILLNEED); }

bool mapped_file::populate(std::span<const std::byte> part) const noexcept {
  return advise(part, MADV_POPULATE_READ) || errno == EINVAL; // before Linux 5.14, pages are read on first use
}

void mapped_file::release(std::span<const std::byte> part) const noexcept { advise(part, MADV_DONTNEED); }

void mapped_file::drop(std::span<const std::byte> part) const noexcept {
  release(part);
  if (part.empty())
    return;
  // Rounded inwards: the system would drop what a neighbour is using, which costs a reread from the disk.
  const auto page = page_bytes();
  const auto begin = (static_cast<std::uintptr_t>(part.data() - data_) + page - 1) / page * page;
  const auto end = static_cast<std::uintptr_t>(part.data() + part.size() - data_) / page * page;
  if (begin < end)
    posix_fadvise(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(end - begin), POSIX_FADV_DONTNEED);
}

std::size_t mapped_file::missing_bytes(std::span<const std::byte> part) const noexcept {
  if (part.empty())
    return 0;
  std::size_t missing = 0;
  const auto page = page_bytes();
  const auto begin = address_of(part.data()) / page * page, end = address_of(part.data() + part.size());
  unsigned char pages[4096];
  for (auto at = begin; at < end; at += sizeof pages * page) {
    const auto bytes = std::min<std::uintptr_t>(end - at, sizeof pages * page);
    const auto count = (bytes + page - 1) / page;
    if (mincore(reinterpret_cast<void*>(at), bytes, pages) != 0)
      return 0; // unknown
    missing += page *
      static_cast<std::size_t>(std::count_if(pages, pages + count, [](unsigned char p) { return (p & 1) == 0; }));
  }
  return missing;
}

bool mapped_file::is_whole() const noexcept {
  struct stat now {};
  return fstat(descriptor_, &now) == 0 && static_cast<std::uint64_t>(now.st_size) == state_.bytes;
}

bool mapped_file::is_called(const std::filesystem::path& file) const noexcept {
  return troupe::is_called(descriptor_, file);
}

bool mapped_file::advise(std::span<const std::byte> part, int advice) const noexcept {
  if (part.empty())
    return true;
  // Rounded outwards: the pages are clean, so dropping one that a neighbour shares costs at most a reread.
  const auto begin = address_of(part.data()) / page_bytes() * page_bytes(), end = address_of(part.data() + part.size());
  return madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0;
}

} // namespace troupe
