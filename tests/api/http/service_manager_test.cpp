// What a service manager hears, which is behind with its reading.
#include "api/http/service_manager.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

using namespace troupe;

TEST_CASE("A manager that has not read what came before hears all the same that the server is ready") {
  const int heard = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const timeval longest{.tv_sec = 60, .tv_usec = 0};
  ::setsockopt(heard, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
  const auto name = "troupe-test-" + std::to_string(::getpid());
  sockaddr_un at = {};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path + 1, name.data(), name.size());
  REQUIRE(::bind(heard, reinterpret_cast<const sockaddr*>(&at),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0);
  ::setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
  const service_manager manager;
  for (int i = 0; i < 1000; ++i) // more than a socket takes
    manager.loading("part " + std::to_string(i));
  const std::jthread ready([&] { manager.ready(); });
  std::string all;
  char text[4096];
  while (all.find("READY=1") == all.npos) {
    const auto count = ::recv(heard, text, sizeof text, 0);
    REQUIRE(count > 0);
    all.append(text, static_cast<std::size_t>(count));
  }
  ::close(heard);
}
