// What a confined process can still do, tried in a process of its own.
#include "runtime/support/files/descriptor.hpp"
#include "runtime/support/machine/confinement.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace troupe;

namespace {

namespace fs = std::filesystem;

struct folders {
  folders() {
    std::string name = (fs::temp_directory_path() / "confined-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    root = name;
    for (const auto* each : {"models", "cache", "secret"}) {
      fs::create_directory(root / each);
      std::ofstream(root / each / "file") << each;
    }
    fs::create_symlink(root / "secret/file", root / "models/link");
  }
  ~folders() { fs::remove_all(root); }
  fs::path root;
};

/// errno of what a confined process tries; 0: it can do it. -1: the kernel has not all that confines.
int tried(const confinement& within, const std::function<bool()>& does) {
  const auto child = fork();
  if (child == 0) {
    if (!confine(within).empty())
      _exit(255);
    errno = 0;
    _exit(does() ? 0 : errno);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

bool opens(const fs::path& file, int how) { return static_cast<bool>(descriptor(::open(file.c_str(), how, 0600))); }

bool connects() {
  const descriptor to(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{
    .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  return ::connect(to.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

} // namespace

TEST_CASE("a process that has other threads is not confined, as they would not be") {
  const auto child = fork();
  if (child == 0) {
    std::thread([] { pause(); }).detach();
    _exit(confine({}) == "it runs threads already, which Landlock does not confine" ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("a confined process opens what it was given, and nothing else") {
  const folders at;
  const confinement within{{at.root / "models", at.root / "nowhere"}, {at.root / "cache"}};
  const auto can = [&](const std::function<bool()>& does) { return tried(within, does); };
  if (can([] { return true; }) < 0) {
    MESSAGE("this kernel has no Landlock or no seccomp");
    return;
  }
  CHECK(can([&] { return opens(at.root / "models/file", O_RDONLY); }) == 0);
  CHECK(can([&] { return opens(at.root / "models/file", O_WRONLY); }) == EACCES);
  CHECK(can([&] { return opens(at.root / "models/new", O_WRONLY | O_CREAT); }) == EACCES);
  CHECK(can([&] { return opens(at.root / "models/link", O_RDONLY); }) == EACCES);
  CHECK(can([&] { return ::unlink((at.root / "models/file").c_str()) == 0; }) == EACCES);
  CHECK(can([&] { return opens(at.root / "secret/file", O_RDONLY); }) == EACCES);
  CHECK(can([&] { return opens(at.root / "cache/new", O_WRONLY | O_CREAT); }) == 0);
  CHECK(can([&] { return ::rename((at.root / "cache/new").c_str(), (at.root / "cache/file").c_str()) == 0; }) == 0);
  CHECK(can([&] { return ::mkdir((at.root / "cache/folder").c_str(), 0700) == 0; }) == 0);
  CHECK(can([] { return opens("/dev/null", O_RDWR) && opens("/proc/meminfo", O_RDONLY); }) == 0);
}

TEST_CASE("a confined process starts no program, looks into none and connects to no TCP port") {
  const folders at;
  const auto can = [&](const std::function<bool()>& does) { return tried({}, does); };
  if (can([] { return true; }) < 0) {
    MESSAGE("this kernel has no Landlock or no seccomp");
    return;
  }
  CHECK(can([] { return ::execl("/bin/true", "true", nullptr) == 0; }) == EPERM);
  CHECK(can([] { return ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0; }) == EPERM);
  CHECK(can([] { return ::unshare(0) == 0; }) == EPERM);
  const auto refused = can(connects);
  CHECK((refused == EACCES || refused == ECONNREFUSED)); // before Linux 6.7 Landlock knew nothing of connections
}
