// What tests of a server that another process replaces have in common: the line between the two, and a stream that goes
// on meanwhile. For tests only.
#pragma once

#include "api/http/control_socket.hpp"
#include "tests/api/server/live_server.hpp"

#include <array>
#include <memory>
#include <stdexcept>

#include <sys/socket.h>

namespace troupe::test {

class line_to_successor {
public:
  line_to_successor() : line_to_successor(ends()) {}

  const std::shared_ptr<control_peer> here; // the server's end
  control_peer there;

private:
  explicit line_to_successor(std::array<int, 2> of)
    : here(std::make_shared<control_peer>(descriptor(of[0]))), there(descriptor(of[1])) {}

  static std::array<int, 2> ends() {
    std::array<int, 2> made{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, made.data()) != 0)
      throw std::runtime_error("there are no sockets");
    return made;
  }
};

/// A stream whose client has its first text.
class begun_stream {
public:
  begun_stream(live_server& server, raw_client& client) : client_(client) {
    client_.post("/v1/completions", R"({"prompt":"a","stream":true})");
    request = server.fake.next();
    request->text("one");
    client_.read_until("one");
  }
  /// The rest comes.
  void finish() {
    request->text("two");
    request->finish();
    request->done();
    client_.read_until("[DONE]\n\n\r\n0\r\n\r\n");
  }

  std::shared_ptr<fake_request> request;

private:
  raw_client& client_;
};

} // namespace troupe::test
