#include "api/http/control_socket.hpp"

#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

using namespace troupe;

namespace {

struct own_place {
  std::filesystem::path folder;
  own_place() {
    std::string pattern = std::filesystem::temp_directory_path() / "troupe-control-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~own_place() { std::filesystem::remove_all(folder); }
  std::filesystem::path path() const { return folder / "within" / "socket"; }
};

} // namespace

TEST_CASE("Messages and open files go from process to process, and the end of one is the other's end") {
  const own_place place;
  control_listener listener(place.path());
  struct stat made {};
  REQUIRE(::stat(place.path().c_str(), &made) == 0);
  CHECK((made.st_mode & 0077) == 0);
  auto here = control_peer::connect(place.path());
  auto there = listener.accept();
  REQUIRE(there);
  CHECK(there->is_same_user());
  const std::string text(300'000, 'x');
  std::thread sender([&] {
    const descriptor file(::open("/dev/null", O_RDONLY));
    CHECK(here->send(text, file.get()));
    CHECK(here->send(""));
    here.reset();
  });
  const auto first = there->receive();
  REQUIRE(first);
  CHECK(first->text == text);
  CHECK(bool(first->file));
  CHECK((::fcntl(first->file.get(), F_GETFD) & FD_CLOEXEC) != 0);
  const auto second = there->receive();
  REQUIRE(second);
  CHECK(second->text.empty());
  CHECK_FALSE(bool(second->file));
  CHECK_FALSE(there->receive());
  sender.join();
}

TEST_CASE("A path that another server listens at is refused, what a dead one left is replaced, and goes at the end") {
  const own_place place;
  CHECK_THROWS_AS(control_peer::connect(place.path()), failure);
  {
    control_listener listener(place.path());
    CHECK_THROWS_WITH_AS(control_listener(place.path()), doctest::Contains("another server has it"), failure);
    std::filesystem::rename(place.path(), place.folder / "left");
  }
  std::filesystem::rename(place.folder / "left", place.path());
  {
    control_listener listener(place.path());
    std::thread waiter([&] { CHECK(listener.accept() == nullptr); });
    listener.shut_down();
    waiter.join();
  }
  CHECK_FALSE(std::filesystem::exists(place.path()));
  CHECK_THROWS_AS(control_listener(std::string(200, 'a')), failure);
}

TEST_CASE("A message that is too long is not sent, and one that announces more ends the conversation") {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  const descriptor here(pair[0]);
  control_peer there{descriptor(pair[1])};
  CHECK_FALSE(there.send(std::string(control_peer::most_bytes + 1, 'x')));
  const std::uint64_t size = control_peer::most_bytes + 1;
  REQUIRE(::write(here.get(), &size, sizeof size) == sizeof size);
  CHECK_FALSE(there.receive());
}
