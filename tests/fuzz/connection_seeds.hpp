// Seed connections in parts, so that a mutated body can keep a correct length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::test {

struct connection_part {
  enum class kind : std::uint8_t {
    bytes,   // verbatim
    sized,   // a head, then Content-Length and the body
    chunked, // a head, then the body in chunks
    frame,   // a masked WebSocket message of text
    wait     // until the server is idle
  } how = kind::bytes;
  std::string head;
  std::string body;
};

struct connection_script {
  unsigned char habit = 0; // client_habit
  std::vector<connection_part> parts;

  /// The input for drive_connection().
  std::string bytes() const;
};

std::vector<connection_script> connection_seeds();

/// A dictionary of the formats in a connection's bytes.
const std::vector<std::string>& connection_words();

} // namespace troupe::test
