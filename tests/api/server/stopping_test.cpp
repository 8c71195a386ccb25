#include "runtime/support/meter.hpp"
#include "tests/api/server/live_server.hpp"
#include "tests/api/server/websocket_client.hpp"

#include <doctest/doctest.h>

#include <future>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr auto stream = R"({"prompt":"a","stream":true})";
constexpr auto chat_body = R"({"messages":[{"role":"user","content":"x"}]})";

/// A template that renders until it is asked to stop.
class endless_template {
public:
  explicit endless_template(fake_service& of) {
    of.served->render = [this](const chat_input& input) -> std::string {
      begun_.set_value();
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, input.stop, [] { return false; });
      }
      ended_.set_value(); // and this may be gone
      throw failure(errc::cancelled, "the request was given up");
    };
  }
  bool begins() { return begun_.get_future().wait_for(patience) == std::future_status::ready; }
  bool ends() { return ended_.get_future().wait_for(patience) == std::future_status::ready; }

private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::promise<void> begun_, ended_;
};

/// Encodes until what it is charged to has enough of it. Charged as a tokenizer is.
class endless_tokenizer {
public:
  explicit endless_tokenizer(fake_service& of) {
    of.served->encode = [this](std::string_view, bool) -> std::vector<token_id> {
      begun_.set_value();
      try {
        for (;;)
          meter::charge(1);
      } catch (const meter_spent&) {
        ended_.set_value();
        throw;
      }
    };
  }
  bool begins() { return begun_.get_future().wait_for(patience) == std::future_status::ready; }
  bool ends() { return ended_.get_future().wait_for(patience) == std::future_status::ready; }

private:
  std::promise<void> begun_, ended_;
};

server_options without_grace() {
  server_options options;
  options.stop_grace = std::chrono::milliseconds(0);
  return options;
}

} // namespace

TEST_CASE("A stream that outlasts the grace ends with an error event, [DONE] and the last chunk") {
  live_server live(without_grace());
  raw_client client(live.port());
  client.post("/v1/completions", stream);
  const auto request = live.fake.next();
  request->text("x");
  client.read_head();
  client.read_chunk();
  live.begin_stop();
  CHECK(client.read_chunk() ==
        "data: {\"error\":{\"message\":\"the server is stopping\",\"type\":\"server_error\","
        "\"param\":null,\"code\":\"unavailable\"}}\n\ndata: [DONE]\n\n");
  CHECK(client.read_chunk().empty());
  CHECK(client.read_all().empty());
  CHECK(request->wait_cancelled());
}

TEST_CASE("A whole response that outlasts the grace is a 503") {
  live_server live(without_grace());
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":["a","b"]})");
  const auto first = live.fake.next(), second = live.fake.next();
  live.begin_stop();
  const auto answer = client.read_response();
  CHECK(answer.status == 503);
  CHECK(answer.headers.at("connection") == "close");
  CHECK(answer.body.find("the server is stopping") != std::string::npos);
  CHECK(client.read_all().empty());
  CHECK(first->wait_cancelled());
  CHECK(second->wait_cancelled());
}

TEST_CASE("While a server drains, every answer says close, and others hear from /health that it drains") {
  server_options options;
  options.stop_grace = std::chrono::minutes(10);
  live_server live(options);
  raw_client kept(live.port()), streams(live.port()), idle(live.port());
  idle.get("/health");
  CHECK(idle.read_response().headers.count("connection") == 0);
  kept.post("/v1/completions", R"({"prompt":"a"})");
  const auto whole = live.fake.next();
  streams.post("/v1/completions", stream);
  const auto streamed = live.fake.next();
  live.begin_stop();
  CHECK(idle.read_all().empty());

  const auto asked = [&](std::string_view method, std::string_view path) {
    raw_client late(live.port());
    late.request(method, path, method == "POST" ? R"({"prompt":"a"})" : "", "Content-Type: application/json\r\n");
    auto answer = late.read_response();
    CHECK(answer.headers.at("connection") == "close");
    CHECK(late.read_all().empty());
    return answer;
  };
  const auto health = asked("GET", "/health");
  CHECK(health.status == 503);
  CHECK(health.body == R"({"status":"draining"})");
  CHECK(asked("GET", "/metrics").body.find("\ntroupe_requests_in_flight 2\n") != std::string::npos);
  const auto refused = asked("POST", "/v1/completions");
  CHECK(refused.status == 503);
  CHECK(refused.body.find("the server is stopping") != std::string::npos);
  CHECK(live.fake.nothing_submitted());
  raw_client silent(live.port()); // is not waited for

  streamed->text("x");
  CHECK(streams.read_head().headers.at("connection") == "close");
  streamed->done();
  whole->text("y");
  whole->done();
  const auto answer = kept.read_response();
  CHECK(answer.status == 200);
  CHECK(answer.headers.at("connection") == "close");
  const auto begun = std::chrono::steady_clock::now();
  live.stop();
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::minutes(5));
}

TEST_CASE("Requests on a WebSocket that outlast the grace end with an error, then the socket closes with 1001") {
  live_server live(without_grace());
  ws_client client(live.port());
  for (const auto* id : {"a", "b"})
    client.say(R"({"type":"generate","prompt":"x","id":")" + std::string(id) + "\"}");
  const auto a = live.fake.next(), b = live.fake.next();
  live.begin_stop();
  for (const auto* id : {"a", "b"})
    CHECK(
      client.hear().starts_with(R"({"type":"error","id":")" + std::string(id) +
                                R"(","error":{"message":"the server is stopping","type":"server_error","param":null,)"
                                R"("code":"unavailable"},"retry_after":1,"timings":{"total_ms":)"));
  CHECK(client.read_frame().close_code() == 1001);
  client.send_frame(8, std::string("\x03\xe9", 2));
  CHECK(a->wait_cancelled());
  CHECK(b->wait_cancelled());
}

TEST_CASE("Stopping at once cuts the grace short") {
  live_server live; // the grace is half a minute
  raw_client client(live.port());
  client.post("/v1/completions", stream);
  const auto request = live.fake.next();
  SUBCASE("when it has begun") { live.begin_stop(); }
  SUBCASE("from the start") {}
  live.stop_now();
  CHECK(client.read_response().status == 503);
  live.stop();
}

TEST_CASE("A text is not encoded to its end when its client has left") {
  live_server live;
  endless_tokenizer slow(live.fake);
  for (const auto* path : {"/v1/completions", "/tokenize", "/v1/embeddings"}) {
    SUBCASE(path) {
      {
        raw_client client(live.port());
        client.post(path, R"({"prompt":"a","input":"a","content":"a"})");
        REQUIRE(slow.begins());
      }
      CHECK(slow.ends());
      CHECK(live.fake.nothing_submitted());
    }
  }
  SUBCASE("of a WebSocket") {
    {
      ws_client client(live.port());
      client.say(R"({"type":"generate","id":"a","prompt":")" + std::string(100'000, 'a') + "\"}");
      REQUIRE(slow.begins());
    }
    CHECK(slow.ends());
  }
}

TEST_CASE("Stopping does not wait for a template") {
  live_server live(without_grace());
  endless_template slow(live.fake);
  SUBCASE("of a chat") {
    raw_client client(live.port());
    client.post("/v1/chat/completions", chat_body);
    CHECK(slow.begins());
    live.begin_stop();
    CHECK(client.read_response().status == 503);
  }
  SUBCASE("of a text to be tokenised") {
    raw_client client(live.port());
    client.post("/tokenize", chat_body);
    CHECK(slow.begins());
    live.begin_stop();
    CHECK(client.read_response().status == 503);
  }
  SUBCASE("of a chat on a WebSocket") {
    ws_client client(live.port());
    client.say(R"({"type":"generate","id":"a","messages":[{"role":"user","content":"x"}]})");
    CHECK(slow.begins());
    live.begin_stop();
    CHECK(client.hear().find("the server is stopping") != std::string::npos);
    CHECK(client.read_frame().close_code() == 1001);
    client.send_frame(8, std::string("\x03\xe9", 2));
  }
  CHECK(slow.ends());
  live.stop();
}

TEST_CASE("A template whose client has left is stopped") {
  live_server live;
  endless_template slow(live.fake);
  SUBCASE("over HTTP") {
    raw_client client(live.port());
    client.post("/v1/chat/completions", chat_body);
    CHECK(slow.begins());
  }
  SUBCASE("for its tokens") {
    raw_client client(live.port());
    client.post("/tokenize", chat_body);
    CHECK(slow.begins());
  }
  SUBCASE("over a WebSocket") {
    ws_client client(live.port());
    client.say(R"({"type":"generate","id":"a","messages":[{"role":"user","content":"x"}]})");
    CHECK(slow.begins());
  }
  CHECK(slow.ends());
}
