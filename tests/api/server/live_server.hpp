// A server over a fake service on a free loopback port, and a client that sees every byte. For tests only.
#pragma once

#include "api/server/http_server.hpp"
#include "tests/api/service/fake_service.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <thread>

namespace troupe::test {

class live_server {
public:
  explicit live_server(server_options options = {}) : server_(fake, at_any_port(std::move(options))) {
    thread_ = std::thread([this] { server_.run_until_stopped(); });
  }
  ~live_server() { stop(); }
  void stop() {
    server_.stop();
    if (thread_.joinable())
      thread_.join();
  }
  void begin_stop() { server_.stop(); }
  void give_to(std::shared_ptr<control_peer> next, std::string_view description, std::chrono::milliseconds grace) {
    server_.give_to(std::move(next), description, grace);
  }
  void take(const std::string& message, descriptor socket) { server_.take(message, std::move(socket)); }
  void wait() { thread_.join(); }
  void stop_now() { server_.stop_now(); }
  void reload(const server_options& next) { server_.reload(next); }
  std::uint16_t port() const { return server_.port(); }

  fake_service fake;

private:
  static server_options at_any_port(server_options options) {
    options.port = 0;
    return options;
  }
  server server_;
  std::thread thread_;
};

struct response {
  int status = 0;
  std::map<std::string, std::string> headers; // lower-case names
  std::string body;                           // dechunked
  std::vector<std::string> chunks;
};

/// A blocking client that knows no protocol: bytes out, bytes in.
class raw_client {
public:
  /// What is spoken below HTTP, over a connected socket; results as of send() and recv().
  struct wire {
    virtual ~wire() = default;
    virtual ssize_t send(std::string_view bytes) = 0;
    virtual ssize_t receive(char* to, std::size_t bytes) = 0;
  };
  using wire_maker = std::function<std::unique_ptr<wire>(int socket)>;

  /// `from`: an address of the loopback network.
  explicit raw_client(std::uint16_t port, int receive_buffer = 0, std::uint32_t from = INADDR_LOOPBACK)
    : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const timeval limit{std::chrono::seconds(patience).count(), 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (from != INADDR_LOOPBACK) {
      sockaddr_in own{};
      own.sin_family = AF_INET;
      own.sin_addr.s_addr = htonl(from);
      if (::bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0)
        throw std::runtime_error("cannot bind");
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      throw std::runtime_error("cannot connect");
  }
  ~raw_client() { close(); }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;

  void speak(const wire_maker& by) { wire_ = by(fd_); }
  void close() {
    if (fd_ >= 0)
      ::close(std::exchange(fd_, -1));
  }
  void shutdown_send() { ::shutdown(fd_, SHUT_WR); }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = wire_ ? wire_->send(bytes) : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0)
        return; // the server closed; its answer is still to be read
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void get(std::string_view path, std::string_view headers = {}) { request("GET", path, {}, headers); }
  void post(std::string_view path, std::string_view body, std::string_view headers = {}) {
    request("POST", path, body, "Content-Type: application/json\r\n" + std::string(headers));
  }
  void request(std::string_view method, std::string_view path, std::string_view body, std::string_view headers) {
    send(std::string(method) + ' ' + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) +
         (method == "POST" ? "Content-Length: " + std::to_string(body.size()) + "\r\n" : "") + "\r\n" +
         std::string(body));
  }

  /// Waits until something has come; reads nothing.
  bool hears() const {
    pollfd one{fd_, POLLIN, 0};
    int ready;
    do
      ready = ::poll(&one, 1, static_cast<int>(std::chrono::milliseconds(patience).count()));
    while (ready < 0 && errno == EINTR);
    return ready == 1;
  }

  /// Reads up to and including `end`; later bytes stay.
  std::string read_until(std::string_view end) {
    std::size_t found;
    while ((found = pending_.find(end)) == pending_.npos)
      if (!receive())
        throw std::runtime_error("the connection ended ahead of what was expected; there was: " + pending_);
    return take(found + end.size());
  }
  std::string read(std::size_t count) {
    while (pending_.size() < count)
      if (!receive())
        throw std::runtime_error("the connection ended ahead of what was expected; there was: " + pending_);
    return take(count);
  }
  /// Reads to the end of the connection. Throws if it does not end.
  std::string read_all() {
    while (receive()) {
    }
    return std::exchange(pending_, {});
  }

  response read_head() {
    response r;
    auto head = read_until("\r\n\r\n");
    while (head.starts_with("HTTP/1.1 100 "))
      head = read_until("\r\n\r\n");
    r.status = std::stoi(head.substr(9, 3));
    for (auto at = head.find("\r\n") + 2; head.substr(at, 2) != "\r\n";) {
      const auto colon = head.find(": ", at), end = head.find("\r\n", at);
      auto name = head.substr(at, colon - at);
      for (auto& c : name)
        c = static_cast<char>(std::tolower(c));
      r.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return r;
  }
  /// The data of one chunk; empty for the last.
  std::string read_chunk() {
    const auto size = std::stoul(read_until("\r\n"), nullptr, 16);
    const auto data = read(size);
    if (read(2) != "\r\n")
      throw std::runtime_error("a chunk must end with CR LF");
    return data;
  }
  response read_response(bool head_only = false) {
    auto r = read_head();
    if (head_only || r.status == 204)
      return r;
    if (r.headers.contains("transfer-encoding")) {
      for (std::string chunk; !(chunk = read_chunk()).empty();) {
        r.body += chunk;
        r.chunks.push_back(chunk);
      }
    } else {
      r.body = read(std::stoul(r.headers.at("content-length")));
    }
    return r;
  }

private:
  bool receive() {
    char buffer[4096];
    ssize_t count;
    do // a process that was stopped and goes on is told so
      count = wire_ ? wire_->receive(buffer, sizeof buffer) : ::recv(fd_, buffer, sizeof buffer, 0);
    while (count < 0 && errno == EINTR);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      throw std::runtime_error("nothing came in time; there was: " + pending_);
    if (count <= 0)
      return false;
    pending_.append(buffer, static_cast<std::size_t>(count));
    return true;
  }
  std::string take(std::size_t count) {
    auto result = pending_.substr(0, count);
    pending_.erase(0, count);
    return result;
  }

  int fd_;
  std::unique_ptr<wire> wire_; // null: nothing
  std::string pending_;
};

/// The answer to one request on a connection of its own.
inline response get(std::uint16_t port, std::string_view path, std::string_view headers = {}) {
  raw_client client(port);
  client.get(path, headers);
  return client.read_response();
}

/// Hides a response's ids and times, so that the rest can be compared.
inline std::string without_ids(std::string text) {
  for (const auto* key : {"\"id\":\"", "\"created\":"}) {
    for (auto at = text.find(key); at != text.npos; at = text.find(key, at + 1)) {
      const auto start = at + std::string_view(key).size();
      const auto end = text.find_first_of("\",", start);
      const auto value = std::string_view(text).substr(start);
      if (value.starts_with("cmpl-") || value.starts_with("chatcmpl-") || std::isdigit(value[0]))
        text.replace(start, end - start, "X");
    }
  }
  return text;
}

} // namespace troupe::test
