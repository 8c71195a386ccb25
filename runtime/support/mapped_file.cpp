#include "runtime/support/mapped_file.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/file_reading.hpp"

#include <cerrno>
#include <cstdint>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

namespace troupe {

mapped_file::mapped_file(const std::filesystem::path& file) {
  const regular_file opened(file);
  state_ = opened.state();
  if (state_.bytes == 0)
    return;
  void* mapped = mmap(nullptr, state_.bytes, PROT_READ, MAP_PRIVATE, opened.descriptor(), 0);
  if (mapped == MAP_FAILED)
    throw failure(errno == ENOMEM ? errc::out_of_memory : errc::bad_file,
                  file.string() + ": cannot be mapped into memory: " + std::generic_category().message(errno));
  data_ = static_cast<const std::byte*>(mapped);
  size_ = state_.bytes;
}

mapped_file::~mapped_file() {
  if (data_)
    munmap(const_cast<std::byte*>(data_), size_);
}

// Hints: a refusal affects only memory use and time.
void mapped_file::prefetch(std::span<const std::byte> part) const noexcept { advise(part, MADV_WILLNEED); }

bool mapped_file::populate(std::span<const std::byte> part) const noexcept {
  return advise(part, MADV_POPULATE_READ) || errno == EINVAL; // before Linux 5.14, pages are read on first use
}

void mapped_file::release(std::span<const std::byte> part) const noexcept { advise(part, MADV_DONTNEED); }

bool mapped_file::advise(std::span<const std::byte> part, int advice) const noexcept {
  if (part.empty())
    return true;
  // Rounded outwards: the pages are clean, so dropping one that a neighbour shares costs at most a reread.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size());
  return madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0;
}

} // namespace troupe
