#include "runtime/support/files/own_folder.hpp"

#include "runtime/support/error.hpp"

#include <cerrno>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <random>
#include <sys/stat.h>
#include <system_error>

namespace troupe {

namespace fs = std::filesystem;

namespace {

constexpr int of_ours = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

[[noreturn]] void refuse_folder(const fs::path& folder, const std::string& why, errc code = errc::bad_file) {
  throw failure(code, folder.string() + ": " + why);
}

std::string text_of(int error) { return std::generic_category().message(error); }

bool is_trusted(uid_t owner) { return owner == geteuid() || owner == 0; }

bool is_for_user_alone(const struct stat& s) { return s.st_uid == geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0; }

} // namespace

bool is_own_file(const descriptor& opened) {
  struct stat s {};
  if (fstat(opened.get(), &s) != 0)
    return false;
  errno = EPERM;
  return S_ISREG(s.st_mode) && is_trusted(s.st_uid) && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool is_unshared_file(const descriptor& opened) {
  struct stat s {};
  return fstat(opened.get(), &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() && s.st_nlink == 1;
}

own_folder::own_folder(const fs::path& folder) : path_(folder) {
  std::error_code failed;
  const auto above = (folder.has_filename() ? folder : folder.parent_path()).parent_path();
  if (!above.empty())
    fs::create_directories(above, failed);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    refuse_folder(folder, "cannot be created: " + text_of(errno),
                  errno == ENOTDIR ? errc::bad_request : errc::bad_file);
  // The user may name a link.
  opened_ = descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened_ && errno == ENOTDIR)
    refuse_folder(folder, "is not a folder", errc::bad_request);
  struct stat s {};
  if (!opened_ || fstat(get(), &s) != 0)
    refuse_folder(folder, "cannot be opened: " + text_of(errno));
  if (!is_trusted(s.st_uid))
    refuse_folder(folder,
                  "its owner is another user (uid " + std::to_string(s.st_uid) +
                    "), who could put files into it that this program then believes; name a folder of your own");
  if ((s.st_mode & S_IWOTH) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", s.st_mode & 07777);
    refuse_folder(folder,
                  "everybody may write to it (mode " + std::string(mode) +
                    "), so its files are not believed; name a folder of your own, or take that right from others than "
                    "its owner");
  }
}

std::optional<own_folder> own_folder::within(const std::string& name, bool make) const {
  descriptor opened(openat(get(), name.c_str(), O_RDONLY | O_DIRECTORY | of_ours));
  if (!opened && errno == ENOENT && make && (mkdirat(get(), name.c_str(), 0700) == 0 || errno == EEXIST))
    opened = descriptor(openat(get(), name.c_str(), O_RDONLY | O_DIRECTORY | of_ours));
  struct stat s {};
  if (!opened || fstat(opened.get(), &s) != 0)
    return std::nullopt;
  errno = EPERM;
  if (!is_for_user_alone(s))
    return std::nullopt;
  return own_folder(path_ / name, std::move(opened));
}

descriptor own_folder::open(const std::string& name) const {
  descriptor opened(openat(get(), name.c_str(), O_RDONLY | of_ours));
  return opened && is_own_file(opened) ? std::move(opened) : descriptor();
}

descriptor own_folder::create(const std::string& name) const {
  return descriptor(openat(get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | of_ours, 0600));
}

bool own_folder::remove(const std::string& name) const { return unlinkat(get(), name.c_str(), 0) == 0; }

std::vector<std::string> own_folder::names() const {
  std::vector<std::string> found;
  const int again = openat(get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); // with a position of its own
  const std::unique_ptr<DIR, int (*)(DIR*)> list(again < 0 ? nullptr : fdopendir(again), &closedir);
  if (!list) {
    const descriptor closed(again);
    return found;
  }
  while (const auto* entry = readdir(list.get()))
    if (const std::string name = entry->d_name; name != "." && name != "..")
      found.push_back(name);
  return found;
}

own_folder::secret_bytes own_folder::secret() const {
  constexpr auto file = "secret";
  const auto refuse = [&](const std::string& why) { refuse_folder(path_ / file, why); };
  secret_bytes bytes;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const descriptor there(openat(get(), file, O_RDONLY | of_ours));
    if (there) {
      struct stat s {};
      if (fstat(there.get(), &s) != 0)
        refuse(text_of(errno));
      if (!S_ISREG(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & 077) != 0)
        refuse("others than this user could have written or read it, so what is kept there is not believed; remove it");
      if (s.st_size == static_cast<off_t>(bytes.size()) && read_whole(there, bytes.data(), bytes.size()))
        return bytes;
      remove(file); // damaged; all that it was for is unknown now
    } else if (errno != ENOENT) {
      refuse("cannot be read: " + text_of(errno));
    }
    std::random_device random;
    for (auto& b : bytes)
      b = static_cast<std::byte>(random());
    const auto beside = ".partial-secret-" + std::to_string(getpid());
    remove(beside);
    const auto made = create(beside);
    const bool whole = made && write_whole(made, bytes.data(), bytes.size()) && fsync(made.get()) == 0;
    const bool won = whole && linkat(get(), beside.c_str(), get(), file, 0) == 0;
    const int why = errno;
    remove(beside);
    if (won)
      return bytes;
    if (why != EEXIST || !whole)
      refuse("cannot be created: " + text_of(why));
  }
  refuse_folder(path_ / file, "is made and removed by others all the time");
}

} // namespace troupe
