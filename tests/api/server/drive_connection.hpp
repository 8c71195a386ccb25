// Serves a whole connection without sockets: a client's bytes in, the replies out, through the server's own code and a
// service that answers at once. Deterministic: time passes only between inputs.
#pragma once

#include <string>
#include <string_view>

namespace troupe::test {

/// A mark within an input at which the client waits until the server is idle.
inline constexpr std::string_view client_waits = "\x1e\x1e\x1e\x1e";

/// The client's behaviour: bits of an input's first byte.
enum client_habit : unsigned char {
  in_pieces_of_1 = 1,
  in_pieces_of_7 = 2,
  in_pieces_of_64 = 3,
  until_aborted = 4, // never hangs up: the server must end the connection
  until_drained = 8, // the server stops before the client hangs up
  leaves_after_100 = 16,
  leaves_after_1000 = 32, // bytes received, then reads no more
  until_cut = 64,         // the server cuts running requests short
};

struct driven_connection {
  std::string received;
  std::string fault; // empty if replies are well-formed and nothing is left of the connection and its requests
};

/// Prompts containing `hold` are answered only in part until they are cancelled; `fail` and `late` get an error before
/// or after the first token.
driven_connection drive_connection(std::string_view input);

/// The protocol error in a server's side of a connection, or nothing. `torn` allows the last reply to be cut off.
std::string reply_fault(std::string_view received, bool torn);

} // namespace troupe::test
