#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::string_view hidden = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";

} // namespace

TEST_CASE("A body of ambiguous length is refused and never read as the next request") {
  live_server live;
  for (const std::string_view headers :
       {"Transfer-Encoding: identity\r\n", "Transfer-Encoding: gzip\r\n", "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: x\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n"}) {
    CAPTURE(headers);
    raw_client client(live.port());
    client.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
                std::string(headers) + "\r\n");
    client.send(hidden);
    const auto refused = client.read_response();
    CHECK(refused.status == 400);
    CHECK(refused.headers.at("connection") == "close");
    CHECK(client.read_all().empty());
  }
  raw_client old(live.port());
  old.send("POST /tokenize HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  CHECK(old.read_response().status == 400);
  CHECK(old.read_all().empty());
}

TEST_CASE("Two hosts are refused, a URL as the target is accepted") {
  live_server live;
  raw_client client(live.port());
  client.send("GET http://localhost:1/v1/models?x HTTP/1.1\r\nHost: other\r\n\r\n");
  CHECK(client.read_response().status == 200);
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n");
  client.send(hidden);
  CHECK(client.read_response().status == 400);
  CHECK(client.read_all().empty());
}

TEST_CASE("Chunk headers and trailers are bounded, too") {
  live_server live;
  const std::string head = "GET /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string much(1 << 20, 'x');
  for (const auto& body : {"1;" + much, "0;" + much, "0\r\nX: " + much}) {
    raw_client client(live.port());
    client.send(head);
    client.send(body);
    CHECK(client.read_response().status == 431);
  }
}
