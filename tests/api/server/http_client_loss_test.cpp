#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string much(16 << 20, 'x'); // more than the kernel's buffers hold

/// Whether nobody is connected but who asks, on one connection: the server sees the end of each a moment late.
bool all_gone(std::uint16_t port) {
  raw_client client(port);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < until) {
    client.get("/metrics");
    if (client.read_response().body.find("\ntroupe_connections 1\n") != std::string::npos)
      return true;
  }
  return false;
}

} // namespace

TEST_CASE("A connection ends when its client hangs up, even while a request is being refused") {
  live_server live;
  for (int i = 0; i < 200; ++i) {
    raw_client client(live.port());
    client.post("/v1/completions", R"({"prompt":5})");
    if (i % 2)
      client.read_head();
  }
  CHECK(all_gone(live.port()));
}

TEST_CASE("A request is cancelled when its client is gone, even behind many bytes sent ahead") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a"})");
  const auto request = live.fake.next();
  client.send(much);
  client.close();
  CHECK(request->wait_cancelled());
}

TEST_CASE("A client that shuts down its sending side gets its answer, and is noticed when it leaves") {
  live_server live;
  for (const std::string_view body : {R"({"prompt":"a"})", R"({"prompt":"a","stream":true})"}) {
    bool noticed = false;
    for (int tries = 0; tries < 100 && !noticed; ++tries) { // on a busy machine, the server may be too late to notice
      raw_client client(live.port());
      client.post("/v1/completions", body);
      client.shutdown_send();
      const auto request = live.fake.next();
      std::this_thread::sleep_for(std::chrono::milliseconds(400)); // as a prefill takes; the server notices
      request->text("one");
      CHECK_FALSE(request->cancelled());
      request->text("two");
      request->done();
      const auto answer = client.read_response();
      CHECK(answer.status == 200);
      CHECK(answer.body.find("two") != std::string::npos);
      noticed = answer.headers.contains("connection") && answer.headers.at("connection") == "close";
      CHECK(client.read_all().empty());
    }
    CHECK(noticed);
  }
  raw_client tokenises(live.port());
  tokenises.post("/tokenize", R"({"prompt":"a"})");
  tokenises.shutdown_send();
  CHECK(tokenises.read_response().status == 200);
  for (const std::string_view body : {R"({"prompt":"a"})", R"({"prompt":"a","stream":true})"}) {
    raw_client client(live.port());
    client.post("/v1/completions", body);
    client.shutdown_send();
    const auto request = live.fake.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(request->cancelled());
    client.close();
    CHECK(request->wait_cancelled());
  }
  raw_client old(live.port()); // of HTTP/1.0, whose clients take no 100 Continue
  old.send(
    "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}");
  const auto request = live.fake.next();
  old.close();
  CHECK(request->wait_cancelled());
}

TEST_CASE("A client that sends too much ahead gets its answer and the end of the connection") {
  live_server live;
  for (const std::string_view body : {R"({"prompt":"a"})", R"({"prompt":"a","stream":true})"}) {
    raw_client client(live.port());
    client.post("/v1/completions", body);
    const auto request = live.fake.next();
    client.send(much);
    request->text("one");
    request->done();
    const auto answer = client.read_response();
    CHECK(answer.body.find("one") != std::string::npos);
    CHECK(answer.headers.at("connection") == "close");
    CHECK(client.read_all().empty());
  }
}

TEST_CASE("Too many silent connections do not block others") {
  server_options options;
  options.max_connections = 1;
  live_server live(options);
  raw_client first(live.port());
  first.get("/health");
  CHECK(first.read_response().status == 200);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<raw_client>> surplus;
  for (int i = 0; i < 50; ++i)
    surplus.push_back(std::make_unique<raw_client>(live.port()));
  for (const auto& one : surplus)
    CHECK(one->read_response().status == 503);
  // In sequence, each would be waited for: 100 s.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(95));
}

TEST_CASE(
  "A client of a stream of lines that has shut down its sending side is noticed when it leaves between tokens") {
  live_server live;
  const std::string_view body = R"({"model":"org/bytes","prompt":"a","raw":true})";
  {
    raw_client client(live.port());
    client.post("/api/generate", body);
    const auto request = live.fake.next();
    client.shutdown_send();
    request->text("one");
    std::this_thread::sleep_for(std::chrono::milliseconds(100)); // spaces ahead of the next line
    CHECK_FALSE(request->cancelled());
    request->text("two");
    request->done();
    const auto answer = client.read_response();
    CHECK(answer.status == 200);
    CHECK(answer.body.starts_with(R"({"model":)"));
    const auto second = answer.body.substr(answer.body.find('\n') + 1);
    CHECK(second.find_first_not_of(' ') == second.find('{'));
    CHECK(second.find("two") != std::string::npos);
  }
  raw_client client(live.port());
  client.post("/api/generate", body);
  const auto request = live.fake.next();
  request->text("one");
  client.read_head();
  client.shutdown_send();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(request->cancelled());
  client.close();
  CHECK(request->wait_cancelled());
}
