// A socket by whose path another process of the same user speaks with this one: messages with open files, in order. Calls
// block, each for a bounded time unless it says otherwise; a peer may be used by several threads.
#pragma once

#include "runtime/support/files/descriptor.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

class control_peer {
public:
  struct message {
    std::string text;
    descriptor file; // none: no file came along
  };

  static constexpr std::size_t most_bytes = 64 << 20; // of a message

  explicit control_peer(descriptor socket);

  /// Who listens there. Throws failure(unavailable) if nobody does, or somebody who is not of this user.
  static std::unique_ptr<control_peer> connect(const std::filesystem::path& path);

  /// Whether the process at the other end runs as the same user.
  bool is_same_user() const;

  /// A file is sent along, and stays open here. False if the peer is gone or does not read.
  bool send(std::string_view text, int file = -1);
  /// The next message; nothing if the peer is gone, or once shut_down() was called. Waits for it without a limit, for its
  /// rest not.
  std::optional<message> receive();
  /// Ends what others wait for. Any thread.
  void shut_down();

private:
  descriptor socket_;
  std::mutex sending_;
};

class control_listener {
public:
  /// Listens at the path, in place of a server that is gone. The folder is made for this user alone if there is none.
  /// Throws failure(unavailable | bad_request | bad_file).
  explicit control_listener(std::filesystem::path path);
  /// Goes on with another's socket.
  control_listener(std::filesystem::path path, descriptor listening);
  /// Removes the path, unless it was left to another.
  ~control_listener();
  control_listener(const control_listener&) = delete;
  control_listener& operator=(const control_listener&) = delete;

  int get() const { return socket_.get(); }

  /// Waits for the next of this user's processes, without a limit. Null once shut_down() was called.
  std::unique_ptr<control_peer> accept();
  /// Any thread.
  void shut_down();
  /// Another process goes on with the socket.
  void leave_path() { ours_ = false; }

private:
  const std::filesystem::path path_;
  descriptor socket_, stop_;
  bool ours_ = true;
};

/// Where a server that listens on this address or path is spoken with, unless it is told another path: in
/// RUNTIME_DIRECTORY (a service manager's), XDG_RUNTIME_DIR/troupe, or /tmp/troupe-UID.
std::filesystem::path default_control_path(const std::string& host, std::uint16_t port);

} // namespace troupe
