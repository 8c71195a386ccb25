#include "api/http/worker_lane.hpp"

#include "runtime/support/error.hpp"
#include "tests/api/openai/busy_tokenizer.hpp"
#include "tests/api/server/live_server.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <latch>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A lane with one thread, whose tasks wait for a sign and then note who asked for them.
struct noting_lane {
  explicit noting_lane(std::size_t most) : lane(1, most) {}

  void ask(const std::string& client) {
    boost::asio::co_spawn(io, asking(client), boost::asio::detached);
    io.poll();
  }
  void run() {
    begin.count_down();
    io.restart();
    io.run();
  }

  boost::asio::io_context io;
  std::latch begin{1};
  std::vector<std::string> served;
  std::size_t refused = 0;
  worker_lane lane;

private:
  boost::asio::awaitable<void> asking(std::string client) {
    const auto note = [this, &client] {
      begin.wait();
      served.push_back(client);
    };
    try {
      co_await lane.run(client, note);
    } catch (const failure&) {
      ++refused;
    }
  }
};

} // namespace

TEST_CASE("Clients are served in turn, however many tasks one of them has") {
  noting_lane lane(100);
  for (int i = 0; i < 40; ++i)
    lane.ask("a");
  for (const auto* client : {"b", "c", "b"})
    lane.ask(client);
  lane.run();
  REQUIRE(lane.served.size() == 43);
  const auto last = std::find(lane.served.rbegin(), lane.served.rend(), "b");
  CHECK(lane.served.rend() - last <= 6);
  CHECK(std::ranges::find(lane.served, "c") - lane.served.begin() <= 3);
  CHECK(lane.lane.idle());
}

TEST_CASE("A client that fills a lane leaves room for others") {
  noting_lane lane(16);
  for (int i = 0; i < 20; ++i)
    for (const auto* client : {"a", "b"})
      lane.ask(client);
  CHECK(lane.refused == 40 - 16);
  lane.ask("c");
  lane.run();
  CHECK(std::ranges::count(lane.served, "a") == 8);
  CHECK(std::ranges::count(lane.served, "b") == 8);
  CHECK(std::ranges::count(lane.served, "c") == 1);
}

TEST_CASE("Short requests do not wait for long ones to be parsed") {
  server_options options;
  options.workers = 1;
  live_server live(options);
  busy_tokenizer busy(live.fake, 100'000);
  raw_client first(live.port()), second(live.port());
  first.post("/v1/completions", text_of(100'000));
  second.post("/tokenize", text_of(100'000));
  CHECK(busy.begins());

  raw_client client(live.port());
  client.post("/v1/completions", text_of(3));
  live.fake.next()->done();
  CHECK(client.read_response().status == 200);
  client.post("/tokenize", text_of(3));
  CHECK(client.read_response().status == 200);
  busy.release();
  CHECK(second.read_response().status == 200);
}

TEST_CASE("Health, metrics and models are answered while every worker is busy") {
  server_options options;
  options.workers = 1;
  live_server live(options);
  busy_tokenizer busy(live.fake, 5);
  raw_client brief(live.port()), lengthy(live.port());
  brief.post("/tokenize", text_of(5));
  CHECK(busy.begins());
  lengthy.post("/tokenize", text_of(100'000));
  CHECK(busy.begins());

  raw_client client(live.port());
  for (const auto* path : {"/health", "/metrics", "/v1/models", "/v1/models/org/bytes"}) {
    client.get(path);
    CHECK(client.read_response().status == 200);
  }
  busy.release();
  CHECK(brief.read_response().status == 200);
}

TEST_CASE("The number of requests that wait to be parsed is limited") {
  server_options options;
  options.max_waiting = 1;
  live_server live(options);
  busy_tokenizer busy(live.fake, 5);
  raw_client first(live.port()), client(live.port());
  first.post("/tokenize", text_of(5));
  CHECK(busy.begins());
  for (const auto* path : {"/tokenize", "/v1/completions"}) {
    client.post(path, text_of(3));
    const auto answer = client.read_response();
    CHECK(answer.status == 429);
    CHECK(answer.headers.contains("retry-after"));
    CHECK(answer.body.find("at most 1 may wait") != std::string::npos);
  }
  busy.release();
  CHECK(first.read_response().status == 200);
  client.post("/tokenize", text_of(3));
  CHECK(client.read_response().status == 200);
}
