#include "api/http/control_socket.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/own_folder.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr timeval patience{10, 0}; // for what a peer has begun to send, or does not read
constexpr int most_that_wait = 8;

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  const auto text = path.string();
  if (text.empty() || text.size() >= sizeof to.sun_path)
    throw failure(errc::bad_request,
                  "the control socket's path must have 1 to " + std::to_string(sizeof to.sun_path - 1) +
                    " bytes: " + text.substr(0, 200));
  std::ranges::copy(text, to.sun_path);
  return to;
}

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& why) {
  throw failure(errc::unavailable, "the control socket " + path.string() + ": " + why);
}

descriptor made() { return descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

bool connected(const descriptor& socket, const sockaddr_un& to) {
  return socket && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
}

bool send_all(int to, const char* from, std::size_t bytes) {
  while (bytes > 0) {
    const auto count = ::send(to, from, bytes, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    from += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

bool receive_all(int from, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const auto count = ::recv(from, to, bytes, 0);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    to += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

/// A message begins with its size and one file, or none.
using size_field = std::uint64_t;

union file_space {
  cmsghdr head;
  char bytes[CMSG_SPACE(sizeof(int))];
};

bool wait_readable(int socket, int or_that) {
  std::array<pollfd, 2> both{{{socket, POLLIN, 0}, {or_that, POLLIN, 0}}};
  int count = 0;
  do
    count = ::poll(both.data(), or_that < 0 ? 1 : 2, -1);
  while (count < 0 && errno == EINTR);
  return count > 0 && both[1].revents == 0;
}

} // namespace

control_peer::control_peer(descriptor socket) : socket_(std::move(socket)) {
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

std::unique_ptr<control_peer> control_peer::connect(const std::filesystem::path& path) {
  const auto to = address_of(path);
  auto socket = made();
  if (!connected(socket, to))
    fail(path,
         errno == ENOENT || errno == ECONNREFUSED ? "no server of this user listens there" : std::strerror(errno));
  auto peer = std::make_unique<control_peer>(std::move(socket));
  if (!peer->is_same_user())
    fail(path, "another user's process listens there");
  return peer;
}

bool control_peer::is_same_user() const {
  ucred who = {};
  socklen_t size = sizeof who;
  return ::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == ::geteuid();
}

bool control_peer::send(std::string_view text, int file) {
  if (text.size() > most_bytes)
    return false;
  const std::lock_guard lock(sending_);
  size_field size = text.size();
  iovec head{&size, sizeof size};
  msghdr message = {};
  message.msg_iov = &head;
  message.msg_iovlen = 1;
  file_space space = {};
  if (file >= 0) {
    message.msg_control = space.bytes;
    message.msg_controllen = sizeof space.bytes;
    auto* along = CMSG_FIRSTHDR(&message);
    along->cmsg_level = SOL_SOCKET;
    along->cmsg_type = SCM_RIGHTS;
    along->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(along), &file, sizeof file);
  }
  ssize_t count = 0;
  do
    count = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  while (count < 0 && errno == EINTR);
  return count == ssize_t(sizeof size) && send_all(socket_.get(), text.data(), text.size());
}

std::optional<control_peer::message> control_peer::receive() {
  if (!wait_readable(socket_.get(), -1))
    return std::nullopt;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  size_field size = 0;
  iovec head{&size, sizeof size};
  file_space space = {};
  msghdr given = {};
  given.msg_iov = &head;
  given.msg_iovlen = 1;
  given.msg_control = space.bytes;
  given.msg_controllen = sizeof space.bytes;
  ssize_t count = 0;
  do
    count = ::recvmsg(socket_.get(), &given, MSG_CMSG_CLOEXEC);
  while (count < 0 && errno == EINTR);
  message result;
  for (auto* along = CMSG_FIRSTHDR(&given); along; along = CMSG_NXTHDR(&given, along))
    if (along->cmsg_level == SOL_SOCKET && along->cmsg_type == SCM_RIGHTS) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(along), sizeof file);
      result.file = descriptor(file);
    }
  if (count <= 0 ||
      !receive_all(socket_.get(), reinterpret_cast<char*>(&size) + count, sizeof size - std::size_t(count)) ||
      size > most_bytes)
    return std::nullopt;
  result.text.resize(size);
  if (!receive_all(socket_.get(), result.text.data(), size))
    return std::nullopt;
  return result;
}

void control_peer::shut_down() { ::shutdown(socket_.get(), SHUT_RDWR); }

control_listener::control_listener(std::filesystem::path path) : path_(std::move(path)) {
  const auto at = address_of(path_);
  if (path_.has_parent_path())
    own_folder made_for_us(path_.parent_path());
  struct stat found = {};
  if (::lstat(path_.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode))
      fail(path_, "there is something else");
    if (connected(made(), at))
      fail(path_, "another server has it; --replace takes over from that, --control-socket names another path");
    ::unlink(path_.c_str());
  }
  socket_ = made();
  const auto mask = ::umask(0177); // before any thread is started
  const bool bound = socket_ && ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  const auto why = errno;
  ::umask(mask);
  if (!bound || ::listen(socket_.get(), most_that_wait) != 0)
    fail(path_, std::strerror(bound ? errno : why));
  stop_ = descriptor(::eventfd(0, EFD_CLOEXEC));
}

control_listener::control_listener(std::filesystem::path path, descriptor listening)
  : path_(std::move(path)), socket_(std::move(listening)), stop_(::eventfd(0, EFD_CLOEXEC)) {}

control_listener::~control_listener() {
  if (ours_)
    ::unlink(path_.c_str());
}

std::unique_ptr<control_peer> control_listener::accept() {
  for (;;) {
    if (!wait_readable(socket_.get(), stop_.get()))
      return nullptr;
    descriptor accepted(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted)
      continue;
    auto peer = std::make_unique<control_peer>(std::move(accepted));
    if (peer->is_same_user())
      return peer;
  }
}

void control_listener::shut_down() {
  const std::uint64_t once = 1;
  [[maybe_unused]] const auto written = ::write(stop_.get(), &once, sizeof once);
}

std::filesystem::path default_control_path(const std::string& host, std::uint16_t port) {
  std::filesystem::path folder = "/tmp/troupe-" + std::to_string(::geteuid());
  if (const char* given = std::getenv("RUNTIME_DIRECTORY"); given && *given)
    folder = std::string_view(given).substr(0, std::string_view(given).find(':'));
  else if (const char* own = std::getenv("XDG_RUNTIME_DIR"); own && *own)
    folder = std::filesystem::path(own) / "troupe";
  auto name = host + '-' + std::to_string(port);
  std::ranges::replace_if(
    name, [](char c) { return c == '/' || c == ':'; }, '_');
  return folder / (name + ".control");
}

} // namespace troupe
