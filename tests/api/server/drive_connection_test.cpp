#include "tests/api/server/drive_connection.hpp"

#include <doctest/doctest.h>

using namespace troupe::test;

namespace {

const std::string waits{client_waits};
const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

std::string get(const std::string& path, const std::string& headers = {}) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
}

std::string complete(const std::string& prompt, const std::string& fields = {}) {
  const auto body = "{\"prompt\":\"" + prompt + '"' + fields + '}';
  return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
    std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t result = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1))
    ++result;
  return result;
}

/// The replies to a client with these habits. Also checks that nothing is left of the connection.
std::string served(const std::string& bytes, unsigned char habit = 0) {
  const auto driven = drive_connection(std::string(1, static_cast<char>(habit)) + bytes);
  CHECK(driven.fault == "");
  return driven.received;
}

} // namespace

TEST_CASE("A connection is served without sockets, in pieces of any size") {
  const auto input = get("/health") + complete("a") + waits + complete("b", ",\"stream\":true") + waits + "GET";
  for (const unsigned char habit : {0, +in_pieces_of_1, +in_pieces_of_7, +in_pieces_of_64, +until_aborted}) {
    const auto received = served(input, habit);
    CHECK(count(received, "HTTP/1.1 200 OK") == 3);
    CHECK(count(received, "data: [DONE]") == 1);
  }
  CHECK(served(get("/health") + waits + get("/health"), until_drained).find("status") != std::string::npos);
}

TEST_CASE("Endless requests end with their connection") {
  const auto upgrade = get("/v1/ws",
                           "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
  const std::string text = R"({"type":"generate","id":"a","prompt":"hold"})";
  const auto frame = "\x81" + std::string(1, static_cast<char>(0x80 | text.size())) + std::string(4, '\0') + text;
  for (const unsigned char habit : {0, +until_aborted, +until_drained, until_drained | until_aborted}) {
    CHECK(served(complete("hold") + waits, habit).empty());
    CHECK(served(complete("hold", ",\"stream\":true") + waits, habit).starts_with("HTTP/1.1 200 OK"));
    CHECK(served(upgrade + waits + frame + waits, habit).find(R"({"type":"token","id":"a")") != std::string::npos);
  }
  CHECK(served(complete("a", ",\"stream\":true") + waits + get("/health"), leaves_after_100).size() == 100);
}

TEST_CASE("Replies that are malformed or cut off are found") {
  CHECK(reply_fault("", false).empty());
  CHECK(reply_fault(head + "Content-Length: 2\r\n\r\n{}", false).empty());
  CHECK(reply_fault(head + "Content-Length: 2\r\n\r\n" + head + "Content-Length: 2\r\n\r\n{}", false).empty()); // HEAD
  CHECK(reply_fault(head + "Content-Length: 3\r\n\r\n{}", true).empty());
  const std::string switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n";
  CHECK(reply_fault(switched + "\x81\x02{}" + "\x88\x01x", false).empty());
  for (const auto& wrong :
       {std::string("HTTP"), head, head + "Content-Length: 3\r\n\r\n{}", head + "Content-Length: 1\r\n\r\n{",
        head + "Content-Length: 2\r\n\r\n{}x", head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        head + "Transfer-Encoding: chunked\r\n\r\nx\r\n",
        std::string("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\n\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent\n\n"), switched + "\x81\x02{",
        switched + "\x81\x01{", switched + "\x81\x82{}", switched + "\x82\x02{}", switched + "\x88\x01x\x81\x02{}"}) {
    CAPTURE(wrong);
    CHECK_FALSE(reply_fault(wrong, false).empty());
  }
}
