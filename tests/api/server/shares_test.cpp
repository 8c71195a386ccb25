// What one client makes large or many costs that client: answers that are not read, connections.
#include "tests/api/server/websocket_client.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t megabyte = 1 << 20;
constexpr std::uint32_t another_address = INADDR_LOOPBACK + 1;

server_options with_answer_memory(std::size_t bytes) {
  server_options options;
  options.max_answer_memory = bytes;
  options.sink_bytes = 64 << 10;
  return options;
}

/// Asks for an answer of so many bytes and reads nothing of it.
std::unique_ptr<raw_client> ask(live_server& live, std::size_t bytes) {
  auto client = std::make_unique<raw_client>(live.port(), 4096);
  client->post("/v1/completions", R"({"prompt":"a"})");
  const auto request = live.fake.next();
  request->text(std::string(bytes, 'x'));
  request->done();
  return client;
}

} // namespace

TEST_CASE("A client that does not read its answer loses it to others") {
  live_server live(with_answer_memory(42 * megabyte));
  constexpr auto size = 4 * megabyte; // and until the answer is written, eight times as much for its tokens
  std::vector<std::unique_ptr<raw_client>> unread;
  for (int i = 0; i < 2; ++i) {
    unread.push_back(ask(live, size));
    CHECK(unread.back()->hears()); // so the answer is made, and as good as waits for its client
  }
  const auto until = std::chrono::steady_clock::now() + patience;
  auto answer = ask(live, size)->read_response();
  while (answer.status == 503 &&
         std::chrono::steady_clock::now() < until) { // until one has been waited for long enough
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    answer = ask(live, size)->read_response();
  }
  CHECK(answer.status == 200);
  CHECK(answer.body.size() > size);
  const auto is_whole = [](raw_client& client) {
    try {
      return client.read_response().body.size() > size;
    } catch (const std::runtime_error&) { // it ends
      return false;
    }
  };
  CHECK(is_whole(*unread.front()) != is_whole(*unread.back())); // one was enough
}

TEST_CASE("Without a slow reader, an answer for which there is no room is refused, and short ones are not") {
  live_server live(with_answer_memory(8 * megabyte));
  const auto refused = ask(live, 9 * megabyte);
  const auto answer = refused->read_response();
  CHECK(answer.status == 503);
  CHECK(answer.body.find("--max-answer-memory") != std::string::npos);
  const auto brief = ask(live, 1000);
  CHECK(brief->read_response().status == 200);
}

TEST_CASE("A stream that is not read loses its place, too") {
  live_server live(with_answer_memory(megabyte));
  raw_client client(live.port(), 4096);
  client.post("/v1/completions", R"({"prompt":"a","stream":true,"max_tokens":100})");
  const auto request = live.fake.next();
  for (int i = 0; i < 200 && !request->cancelled(); ++i)
    request->text(std::string(20'000, 'x'));
  CHECK(request->wait_cancelled());
}

TEST_CASE("A handler without memory costs its connection at most, not the server") {
  for (const int threads : {1, 2}) { // the one that serves, and helpers
    server_options options;
    options.sink_bytes = 16 << 10;
    options.threads = threads;
    live_server live(options);
    for (int i = 0; i < 4; ++i) {
      raw_client client(live.port(), 4096);
      client.post("/v1/completions", R"({"prompt":"a","stream":true,"max_tokens":100})");
      const auto request = live.fake.next();
      request->no_memory_to_pause = true;
      for (int k = 0; k < 400 && !request->paused(); ++k)
        request->text(std::string(20'000, 'x'));
      CHECK(request->wait_paused());
    }
    raw_client other(live.port());
    other.get("/health");
    CHECK(other.read_response().status == 200);
  }
}

TEST_CASE("Many frames for a WebSocket that does not read end it") {
  live_server live(with_answer_memory(megabyte));
  ws_client client(live.port(), {}, 4096);
  client.say(R"({"type":"generate","id":"a","prompt":"a","max_tokens":100})");
  const auto request = live.fake.next();
  for (int i = 0; i < 200 && !request->cancelled(); ++i)
    request->text(std::string(20'000, 'x'));
  CHECK(request->wait_cancelled());
}

TEST_CASE("Idle connections of one address give way to those of others") {
  server_options options;
  options.max_connections = 4;
  live_server live(options);
  std::vector<std::unique_ptr<raw_client>> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(std::make_unique<raw_client>(live.port()));
    idle.back()->get("/health");
    CHECK(idle.back()->read_response().status == 200);
  }
  raw_client same(live.port());
  CHECK(same.read_response().status == 503);
  raw_client other(live.port(), 0, another_address);
  other.get("/health");
  CHECK(other.read_response().status == 200);
  CHECK(idle.front()->read_all().empty()); // closed
  idle.back()->get("/health");
  CHECK(idle.back()->read_response().status == 200);
}

TEST_CASE("One address leaves connections to others, whatever it does with its own") {
  server_options options;
  options.max_connections = 8;
  live_server live(options);
  std::vector<std::unique_ptr<raw_client>> busy;
  for (int i = 0; i < 7; ++i) {
    busy.push_back(std::make_unique<raw_client>(live.port()));
    busy.back()->post("/v1/completions", R"({"prompt":"a"})");
    live.fake.next();
  }
  raw_client same(live.port());
  const auto refused = same.read_response();
  CHECK(refused.status == 503);
  CHECK(refused.body.find("from this address") != std::string::npos);
  raw_client other(live.port(), 0, another_address);
  other.get("/health");
  CHECK(other.read_response().status == 200);
}

TEST_CASE(
  "Connections that are turned away and stay are closed, just as their clients leave, and give their places back") {
  server_options options;
  options.max_connections = 1;
  options.threads = 2;
  live_server live(options);
  raw_client first(live.port());
  first.get("/health");
  CHECK(first.read_response().status == 200);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<raw_client>> surplus;
  for (int i = 0; i < 64; ++i) // as many as are answered at once
    surplus.push_back(std::make_unique<raw_client>(live.port()));
  for (const auto& one : surplus)
    CHECK(one->read_response().status == 503);
  const auto stays = std::move(surplus.back());
  surplus.pop_back();
  std::this_thread::sleep_until(begin + std::chrono::milliseconds(1990)); // the server waits for 2 s
  for (auto& one : surplus) {
    one.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(stays->read_all().empty());
  int status = 0;
  const auto until = std::chrono::steady_clock::now() + patience;
  while (status != 503 && std::chrono::steady_clock::now() < until) // their places are free a moment behind their ends
    try {
      raw_client another(live.port());
      status = another.read_response().status;
    } catch (const std::runtime_error&) { // closed without an answer
    }
  CHECK(status == 503);
}

TEST_CASE("A frame that announces more than any may have is refused with a close frame before it comes") {
  live_server live;
  for (const char first : {'\x7f', '\x00'}) {
    const std::string length = std::string(1, first) + "\xff\xff\xff\xff\xff\xff\xff";
    ws_client client(live.port());
    client.send(std::string("\x81\xff") + length + std::string(4, '\0') + "abc");
    const auto closed = client.read_frame();
    CHECK(closed.opcode == 8);
    CHECK(closed.close_code() == 1009);
  }
}

TEST_CASE("CONNECT is answered with 405: this is no proxy") {
  live_server live;
  raw_client client(live.port());
  client.send("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n");
  const auto answer = client.read_response();
  CHECK(answer.status == 405);
  CHECK(answer.headers.contains("allow"));
}
