// A hand-written WebSocket client, independent of the library under test. For tests only.
#pragma once

#include "tests/api/server/live_server.hpp"

namespace troupe::test {

struct frame {
  int opcode = 0; // 1: text, 8: close, 9: ping, 10: pong
  std::string data;
  int close_code() const {
    return (static_cast<unsigned char>(data.at(0)) << 8) | static_cast<unsigned char>(data.at(1));
  }
};

/// RFC 6455.
class ws_client : public raw_client {
public:
  explicit ws_client(std::uint16_t port, std::string_view headers = {}, int receive_buffer = 0,
                     std::string_view query = {}, const wire_maker& by = {})
    : raw_client(port, receive_buffer) {
    if (by)
      speak(by);
    send("GET /v1/ws" + std::string(query) +
         " HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" +
         std::string(headers) + "\r\n");
    upgrade = read_head();
  }
  void send_frame(int opcode, std::string_view data) {
    std::string bytes(1, static_cast<char>(0x80 | opcode));
    if (data.size() < 126) {
      bytes += static_cast<char>(0x80 | data.size());
    } else {
      const int width = data.size() < 65536 ? 2 : 8;
      bytes += static_cast<char>(0x80 | (width == 2 ? 126 : 127));
      for (int i = width - 1; i >= 0; --i)
        bytes += static_cast<char>(data.size() >> (8 * i));
    }
    bytes += std::string(4, '\0'); // a mask that changes nothing
    send(bytes += data);
  }
  void say(std::string_view text) { send_frame(1, text); }
  frame read_frame() {
    frame f;
    const auto head = read(2);
    f.opcode = head[0] & 15;
    std::size_t size = head[1] & 127;
    if (size >= 126) {
      const auto bytes = read(size == 126 ? 2 : 8);
      size = 0;
      for (const unsigned char c : bytes)
        size = size << 8 | c;
    }
    f.data = read(size);
    return f;
  }
  std::string hear() {
    auto f = read_frame();
    for (; f.opcode == 9; f = read_frame()) // a ping, where the test takes long
      send_frame(10, f.data);
    if (f.opcode != 1)
      throw std::runtime_error("a text frame was expected");
    return f.data;
  }

  response upgrade;
};

} // namespace troupe::test
