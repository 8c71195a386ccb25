#include "runtime/support/files/file_state.hpp"

#include "runtime/support/error.hpp"

#include <cerrno>
#include <sys/stat.h>
#include <system_error>

namespace troupe {

namespace {

std::int64_t nanoseconds(const timespec& t) { return std::int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec; }

file_state checked(const std::filesystem::path& file, int result, const struct stat& info) {
  if (result != 0)
    throw failure(
      errno == ENOENT ? errc::not_found : errc::bad_file,
      file.string() +
        (errno == ENOENT ? ": no such file" : ": cannot be read: " + std::generic_category().message(errno)));
  std::error_code ignored; // a path that cannot be made canonical stays as it is
  const auto canonical = std::filesystem::canonical(file, ignored);
  return {ignored ? file : canonical, static_cast<std::uint64_t>(info.st_size), nanoseconds(info.st_mtim),
          nanoseconds(info.st_ctim)};
}

} // namespace

file_state state_of(const std::filesystem::path& file) {
  struct stat info {};
  return checked(file, stat(file.c_str(), &info), info);
}

file_state state_of(const std::filesystem::path& file, int descriptor) {
  struct stat info {};
  return checked(file, fstat(descriptor, &info), info);
}

void require_unchanged(const file_state& before) {
  const auto& file = before.path.string();
  if (!is_there(before.path))
    throw failure(errc::not_found, file + " has vanished since it was loaded");
  const auto now = state_of(before.path);
  if (now.bytes != before.bytes || now.modified_ns != before.modified_ns)
    throw failure(errc::bad_file,
                  file + " has changed since it was loaded: only a new start of the program takes it as it is now");
}

bool is_there(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::status(file, ignored).type() != std::filesystem::file_type::not_found;
}

} // namespace troupe
