// Connections to start mutating from, in parts, so that a mutated body keeps its right length where that is wanted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::test {

struct connection_part {
  enum class kind : std::uint8_t {
    bytes,   // as they are
    sized,   // a head, then Content-Length and the body
    chunked, // a head, then the body in chunks
    frame,   // a masked WebSocket message of text
    wait     // until the server has nothing left to do
  } how = kind::bytes;
  std::string head;
  std::string body;
};

struct connection_script {
  unsigned char habit = 0; // client_habit
  std::vector<connection_part> parts;

  /// As drive_connection() takes it.
  std::string bytes() const;
};

std::vector<connection_script> connection_seeds();

/// Words of the formats that a connection's bytes are in.
const std::vector<std::string>& connection_words();

} // namespace troupe::test
