#include "api/http/service_manager.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/machine/environment.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr auto more_time = "EXTEND_TIMEOUT_USEC=120000000"; // for the next part of a load

std::int64_t number_in(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end == text.data() + text.size() ? value : 0;
}

} // namespace

service_manager::service_manager() {
  address_ = take_variable("NOTIFY_SOCKET");
  const auto limit = number_in(take_variable("WATCHDOG_USEC"));
  const auto process = take_variable("WATCHDOG_PID");
  if (address_.empty())
    return;
  if ((address_.front() != '/' && address_.front() != '@') || address_.size() >= sizeof(sockaddr_un::sun_path))
    throw failure(errc::bad_request,
                  "NOTIFY_SOCKET must be a path, or a name behind @, of at most " +
                    std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes");
  if (address_.front() == '@')
    address_.front() = '\0';
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const timeval longest{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
  if (limit > 0 && (process.empty() || process == std::to_string(getpid())))
    watchdog_ = std::chrono::microseconds(std::max<std::int64_t>(limit / 2, 1000));
}

service_manager::~service_manager() {
  if (socket_ >= 0)
    ::close(socket_);
}

void service_manager::tell(std::string_view assignments, int flags) const {
  if (socket_ < 0)
    return;
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  ::sendto(socket_, assignments.data(), assignments.size(), MSG_NOSIGNAL | flags,
           reinterpret_cast<const sockaddr*>(&to), size);
}

void service_manager::loading(std::string_view line) const {
  std::string status(line.substr(0, 200));
  std::ranges::replace_if(
    status, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  tell("STATUS=" + status + "\n" + more_time, MSG_DONTWAIT); // the next one says more
}

void service_manager::reloading() const {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  tell("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(now.tv_sec * 1'000'000 + now.tv_nsec / 1000));
}

} // namespace troupe
