// The socket that a program was started with: systemd listens in its place and passes it on (socket activation).
#pragma once

#include <optional>
#include <string>

namespace troupe {

struct inherited_socket {
  int descriptor = -1; // listens
  std::string host;    // the address that it is bound to
};

/// What $LISTEN_PID and $LISTEN_FDS pass to this process, which are taken from the environment; nothing without them.
/// Throws failure(bad_request) if that is not one socket that listens for TCP connections.
std::optional<inherited_socket> take_inherited_socket();

} // namespace troupe
