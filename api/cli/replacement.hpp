// One server takes another's place: what the two processes say to each other over the control socket (version 1), and who
// does what. The new one has its model first; until it says so, and if it ends before, the old one serves as ever.
#pragma once

#include "api/http/control_socket.hpp"
#include "api/server/http_server.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace troupe::cli {

/// A program that returns to its caller once it serves, and goes on.
class background {
public:
  /// Goes on in a child. Before any thread is started. Does not return in the parent, which ends with status 0 once the
  /// child serves, or with that of a child that does not. Throws failure(unavailable).
  background();
  void serves();

private:
  descriptor told_;
};

/// In the new process: the server whose place it takes.
class predecessor {
public:
  /// Throws failure(unavailable) if none listens at the path, it is another user's, or of another version of this
  /// conversation; it serves on then.
  explicit predecessor(const std::string& control_path);
  ~predecessor();

  /// Makes the server listen on what the old one listens on.
  void give_socket(server_options& to);
  /// The control socket itself, on which this process listens from now on.
  descriptor take_control() { return std::move(control_); }
  const std::string& version() const { return version_; }

  /// The new server accepts connections from here on, and gets those that the old one gives away. Calls `ended` once,
  /// when that has given all and says why it is gone: false if it broke off. Returns at once.
  void take_over(server& next, std::function<void(bool)> ended);

private:
  std::unique_ptr<control_peer> peer_;
  descriptor listening_, control_;
  std::string host_, version_;
  std::jthread reader_;
};

/// In the old process: listens for a successor, on a thread of its own.
class successors {
public:
  struct self {
    server& serving;
    std::string host;
    std::chrono::milliseconds grace;                // for what runs when it is replaced, and cannot be given away
    std::function<void(std::int64_t)> replaced;     // told the process id of who takes over; on a thread of its own
    std::function<void(const std::string&)> failed; // told why one that wanted to did not
  };
  successors(std::unique_ptr<control_listener> listener, self who);
  /// Tells a successor that it has got all.
  ~successors();

private:
  void listen();
  void serve(const std::shared_ptr<control_peer>& peer);
  std::int64_t agree(control_peer& peer);

  const std::unique_ptr<control_listener> listener_;
  const self who_;
  std::mutex mutex_;                   // of peer_
  std::shared_ptr<control_peer> peer_; // who loads, or has taken over; null: nobody
  std::atomic<bool> taken_over_ = false;
  std::jthread talking_, listening_;
};

} // namespace troupe::cli
