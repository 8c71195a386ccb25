// A whole connection without sockets: what a client sends in, what it gets out, through the very code that serves
// sockets, up to a service that answers at once. Deterministic: time passes only between inputs.
#pragma once

#include <string>
#include <string_view>

namespace troupe::test {

/// Within an input, where the client waits until the server has nothing left to do.
inline constexpr std::string_view client_waits = "\x1e\x1e\x1e\x1e";

/// How the client behaves, in the first byte of an input.
enum client_habit : unsigned char {
  in_pieces_of_1 = 1,
  in_pieces_of_7 = 2,
  in_pieces_of_64 = 3,
  until_aborted = 4, // hangs up never: the server must end the connection
  until_drained = 8, // the server stops before the client hangs up
  leaves_after_100 = 16,
  leaves_after_1000 = 32, // bytes, and reads no more
  until_cut = 64,         // the server takes no more time for requests under way
};

struct driven_connection {
  std::string received;
  std::string fault; // empty: replies are well-formed, and nothing is left of the connection and its requests
};

/// Prompts with `hold` in them are answered in part only, until they are cancelled; `fail` and `late` get an error
/// ahead of the first token or after it.
driven_connection drive_connection(std::string_view input);

/// What the server's side of a connection breaks; empty where nothing. `torn`: the last reply may be cut off.
std::string reply_fault(std::string_view received, bool torn);

} // namespace troupe::test
