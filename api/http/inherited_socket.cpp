#include "api/http/inherited_socket.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/machine/environment.hpp"

#include <array>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr int first_passed = 3; // behind stdin, stdout and stderr

[[noreturn]] void refuse_passed() {
  throw failure(errc::bad_request, "what was passed to listen on (LISTEN_FDS) is not a socket that listens for TCP");
}

int number_option(int socket, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

} // namespace

std::optional<inherited_socket> take_inherited_socket() {
  const auto process = take_variable("LISTEN_PID"), count = take_variable("LISTEN_FDS");
  take_variable("LISTEN_FDNAMES");
  if (count.empty() || process != std::to_string(getpid()))
    return std::nullopt;
  if (count != "1")
    throw failure(errc::bad_request, "one socket can be passed to listen on, not " + count + " (LISTEN_FDS)");
  if (number_option(first_passed, SO_ACCEPTCONN) != 1 || number_option(first_passed, SO_TYPE) != SOCK_STREAM)
    refuse_passed();
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (getsockname(first_passed, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    refuse_passed();
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const void* bytes = nullptr;
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  if (address.ss_family == AF_INET) {
    std::memcpy(&v4, &address, sizeof v4);
    bytes = &v4.sin_addr;
  } else if (address.ss_family == AF_INET6) {
    std::memcpy(&v6, &address, sizeof v6);
    bytes = &v6.sin6_addr;
  }
  if (!bytes || !inet_ntop(address.ss_family, bytes, text.data(), text.size()))
    refuse_passed();
  fcntl(first_passed, F_SETFD, FD_CLOEXEC);
  return inherited_socket{first_passed, text.data()};
}

} // namespace troupe
