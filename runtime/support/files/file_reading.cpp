#include "runtime/support/files/file_reading.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/text/byte_size.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace troupe {

namespace {

/// Spare bytes behind a text, so that simdjson parses it in place.
constexpr std::size_t spare_bytes = 64;

[[noreturn]] void refuse(const std::string& name, const std::string& what, errc code = errc::bad_file) {
  throw failure(code, name + ": " + what);
}

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a named pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

int open_to_read(const std::filesystem::path& file) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer. O_NOCTTY: nor acquire a controlling terminal.
  const int opened = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (opened >= 0)
    return opened;
  if (errno == ENOENT)
    refuse(file.string(), "no such file", errc::not_found);
  refuse(file.string(), "cannot be opened: " + std::generic_category().message(errno));
}

/// Up to `most` bytes.
std::string read_some(int descriptor, const std::string& name, std::size_t expected, std::size_t most) {
  constexpr std::size_t piece = std::size_t(1) << 16;
  std::string text;
  text.reserve(std::min(expected, most) + spare_bytes);
  while (text.size() < most) {
    const auto before = text.size();
    text.resize(before + std::min(before < expected ? expected - before : piece, most - before));
    const auto got = ::read(descriptor, text.data() + before, text.size() - before);
    if (got < 0 && errno != EINTR)
      refuse(name, "cannot be read: " + std::generic_category().message(errno));
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0)
      break;
  }
  return text;
}

[[noreturn]] void too_large(const std::string& name, const std::string& found, const file_kind& kind) {
  refuse(name, found + ", " + std::string(kind.name) + " has at most " + to_size(kind.most_bytes));
}

std::string read_bounded(int descriptor, const std::string& name, std::size_t expected, const file_kind& kind) {
  // One extra byte detects growth; files of /proc report no size at all.
  auto text = read_some(descriptor, name, expected + 1, kind.most_bytes + 1);
  if (text.size() > kind.most_bytes)
    too_large(name, "has more than " + to_size(kind.most_bytes), kind);
  return text;
}

} // namespace

regular_file::regular_file(const std::filesystem::path& file) : descriptor_(open_to_read(file)) {
  try {
    struct stat info {};
    if (fstat(descriptor_, &info) != 0)
      refuse(file.string(), "cannot be read: " + std::generic_category().message(errno));
    if (!S_ISREG(info.st_mode))
      refuse(file.string(), std::string("is ") + kind_of(info.st_mode) + ", not a regular file");
    state_ = state_of(file, descriptor_);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

regular_file::~regular_file() { ::close(descriptor_); }

std::string read_file(const std::filesystem::path& file, const file_kind& kind) {
  const regular_file opened(file);
  const auto name = file.string();
  if (opened.state().bytes > kind.most_bytes)
    too_large(name, "has " + to_size(opened.state().bytes), kind);
  auto text = read_bounded(opened.descriptor(), name, opened.state().bytes, kind);
  check_fetched(text, name);
  return text;
}

std::string read_all(int descriptor, const std::string& name, const file_kind& kind) {
  return read_bounded(descriptor, name, 0, kind);
}

std::string read_start(const std::filesystem::path& file, std::size_t bytes) {
  const regular_file opened(file);
  return read_some(opened.descriptor(), file.string(), bytes, bytes);
}

void check_fetched(std::string_view content, const std::string& file) {
  if (content.starts_with("version https://git-lfs.github.com/spec/"))
    refuse(file, "is a Git LFS pointer, not the file itself; `git lfs pull` in its folder fetches that");
}

} // namespace troupe
