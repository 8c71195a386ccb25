#include "api/http/budgeted_body.hpp"
#include "api/http/request_quota.hpp"
#include "api/http/token_rate.hpp"
#include "tests/api/openai/busy_tokenizer.hpp"
#include "tests/api/server/websocket_client.hpp"

#include <boost/beast/http/parser.hpp>
#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr auto as_a = "Authorization: Bearer a\r\n", as_b = "Authorization: Bearer b\r\n";

server_options with_keys(std::size_t per_key) {
  server_options options;
  options.api_keys = {"a", "b"};
  options.max_requests_per_key = per_key;
  return options;
}

/// A completion of so many tokens of prompt, with the one that begins it.
std::string json_prompt(std::size_t tokens) { return R"({"prompt":")" + std::string(tokens - 1, 'x') + R"("})"; }

errc refusal(request_quota& quota, const std::string& owner, std::size_t sequences) {
  try {
    quota.acquire(owner, sequences);
  } catch (const failure& f) {
    return f.what_failed().code;
  }
  return errc::internal; // none
}

} // namespace

TEST_CASE("A request that could never be admitted is refused for good, not told to try again") {
  request_quota quota("one API key", 0, 8);
  CHECK(refusal(quota, "a", 9) == errc::bad_request);
  CHECK(refusal(quota, "a", 8) == errc::internal);
  request_quota both("one API key", 3, 8);
  CHECK(refusal(both, "a", 4) == errc::bad_request);
}

TEST_CASE("A quota counts sequences, and the last copy returns them") {
  request_quota quota("one API key", 3);
  auto two = quota.acquire("a", 2);
  auto copy = two;
  CHECK(refusal(quota, "a", 2) == errc::overloaded);
  CHECK(quota.acquire("b", 3) != nullptr); // another owner's
  const auto one = quota.acquire("a", 1);
  two = nullptr;
  CHECK(refusal(quota, "a", 1) == errc::overloaded);
  copy = nullptr;
  CHECK(quota.acquire("a", 2) != nullptr);
  CHECK(refusal(quota, "a", 4) == errc::bad_request); // even if it waited
  CHECK(request_quota("one API key", 0).acquire("a", 1'000'000) == nullptr);
}

TEST_CASE(
  "An owner has so many tokens a minute, goes into debt for those of one request, and is told how long it lasts") {
  using namespace std::chrono_literals;
  token_rate rates;
  const token_rate::time_point now{};
  rates.spend("a", 1'000'000); // nobody has bounded it
  rates.check("a", 60, now);
  rates.spend("a", 59);
  rates.check("a", 60, now);
  rates.spend("a", 121);
  const auto refused = [&](token_rate::time_point when) {
    try {
      rates.check("a", 60, when);
    } catch (const failure& f) {
      CHECK(f.what_failed().code == errc::overloaded);
      return f.what_failed().retry_ms;
    }
    return 0.0;
  };
  CHECK(refused(now) == 121'000);
  CHECK(refused(now + 120s) == 1'000);
  CHECK(refused(now + 121s) == 0);
  rates.check("b", 60, now);
  rates.check("a", 60, now + 1h); // a minute's are saved up, not an hour's
  rates.spend("a", 60);
  CHECK(refused(now + 1h) > 0);
}

TEST_CASE("A budget is shared, and a refused share takes nothing") {
  byte_budget budget(100);
  byte_budget::share a(budget);
  CHECK(a.grow_to(60));
  CHECK(a.grow_to(50)); // below its size
  {
    byte_budget::share b(budget);
    CHECK_FALSE(b.grow_to(41));
    CHECK(b.grow_to(40));
    CHECK(budget.taken() == 100);
    const auto c = std::move(b);
    CHECK(budget.taken() == 100);
  }
  CHECK(budget.taken() == 60);
  a = {};
  CHECK(budget.taken() == 0);
}

TEST_CASE("No client has all of a budget, over all its connections") {
  byte_budget budget(100, 50);
  byte_budget::share a(budget, "client"), b(budget, "client"), other(budget, "other");
  CHECK(a.grow_to(30));
  CHECK_FALSE(b.grow_to(21));
  CHECK(b.grow_to(20));
  CHECK(other.grow_to(50));
  a = {};
  CHECK(b.grow_to(50));
  CHECK(budget.taken() == 100);
}

TEST_CASE("A body takes memory as it arrives, not as announced") {
  byte_budget budget(100'000);
  boost::beast::http::request_parser<budgeted_body> parser;
  parser.get().body().share = byte_budget::share(budget);
  parser.body_limit(1 << 30);
  boost::system::error_code ec;
  const auto put = [&](const std::string& bytes) { parser.put(boost::asio::buffer(bytes), ec); };
  put("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500000000\r\n\r\n");
  put(std::string(1000, 'x'));
  REQUIRE_FALSE(ec);
  CHECK(parser.get().body().text.capacity() < 10'000);
  CHECK(budget.taken() == 0); // the first 64 KiB are free
  put(std::string(90'000, 'x'));
  REQUIRE_FALSE(ec);
  CHECK(budget.taken() == 91'000);
  put(std::string(90'000, 'x'));
  CHECK(ec == boost::system::errc::not_enough_memory);
}

TEST_CASE("The sequences of an API key are limited, independent of other keys") {
  live_server live(with_keys(2));
  raw_client a(live.port()), more(live.port()), b(live.port());
  a.post("/v1/completions", R"({"prompt":"x","n":2})", as_a);
  const auto first = live.fake.next();
  more.post("/v1/completions", R"({"prompt":"x"})", as_a);
  const auto refused = more.read_response();
  CHECK(refused.status == 429);
  CHECK(refused.headers.contains("retry-after"));
  CHECK(refused.body.find("one API key may have at most 2 sequences at once") != std::string::npos);
  more.post("/v1/completions", R"({"prompt":["x","y","z"]})", as_a);
  CHECK(more.read_response().status == 429); // not read while the key may have no sequence
  b.post("/v1/completions", R"({"prompt":["x","y"]})", as_b);
  for (int i = 0; i < 2; ++i)
    live.fake.next()->done();
  CHECK(b.read_response().status == 200);

  more.get("/metrics", as_a);
  CHECK(more.read_response().body.find("troupe_requests_total{outcome=\"refused\"} 2\n") != std::string::npos);

  first->done();
  CHECK(a.read_response().status == 200);
  more.post("/v1/completions", R"({"prompt":["x","y","z"]})", as_a);
  CHECK(more.read_response().status == 400);
  more.post("/v1/completions", R"({"prompt":["x","y"]})", as_a);
  live.fake.next();
  live.fake.next();
}

TEST_CASE("A policy bounds a key's sequences and its tokens in a minute") {
  auto options = with_keys(0);
  options.policy.of_key["key-1"].max_requests = 1;
  options.policy.of_key["key-2"].tokens_per_minute = 100;
  live_server live(options);
  raw_client a(live.port()), more(live.port()), b(live.port());
  a.post("/v1/completions", R"({"prompt":"x"})", as_a);
  const auto first = live.fake.next();
  more.post("/v1/completions", R"({"prompt":"x"})", as_a);
  CHECK(more.read_response().body.find("at most 1 sequences at once") != std::string::npos);
  first->done();
  b.post("/v1/completions", json_prompt(150), as_b); // more than it has, which it could never have otherwise
  live.fake.next()->done();
  CHECK(b.read_response().status == 200);
  b.post("/v1/completions", R"({"prompt":"x"})", as_b);
  const auto refused = b.read_response();
  CHECK(refused.status == 429);
  CHECK(refused.body.find("may use 100 tokens a minute") != std::string::npos);
  CHECK(std::stoi(refused.headers.at("retry-after")) >= 25); // 50 tokens, of which some have come
  ws_client socket(live.port(), as_b);
  socket.say(R"({"type":"generate","id":"a","prompt":"x"})");
  CHECK(socket.hear().find("may use 100 tokens a minute") != std::string::npos);
}

TEST_CASE("Where keys are isolated, prefixes of each are named by it") {
  auto options = with_keys(0);
  options.isolate_keys = true;
  live_server live(options);
  raw_client a(live.port()), b(live.port());
  a.post("/v1/completions", R"({"prompt":"x","cache_salt":"s"})", as_a);
  const auto of_a = live.fake.next();
  b.post("/v1/completions", R"({"prompt":"x","cache_salt":"s"})", as_b);
  const auto of_b = live.fake.next();
  CHECK(of_a->asked.cache_salt == "key key-1\ns");
  CHECK(of_b->asked.cache_salt == "key key-2\ns");
}

TEST_CASE("The sequences of a WebSocket and of its key are limited") {
  auto options = with_keys(3);
  options.max_requests_per_socket = 2;
  live_server live(options);
  ws_client one(live.port(), as_a), two(live.port(), as_a);
  one.say(R"({"type":"generate","id":"a","prompt":"x","n":2})");
  const auto request = live.fake.next();
  one.say(R"({"type":"generate","id":"b","prompt":"x"})");
  CHECK(one.hear().find("one connection may have at most 2 sequences at once") != std::string::npos);
  two.say(R"({"type":"generate","id":"c","prompt":"x","n":2})");
  CHECK(two.hear().find("one API key may have at most 3 sequences at once") != std::string::npos);
  raw_client metrics(live.port());
  metrics.get("/metrics", as_a);
  CHECK(metrics.read_response().body.find("troupe_requests_total{outcome=\"refused\"} 2\n") != std::string::npos);
  request->done();
  CHECK(one.hear().find("\"done\"") != std::string::npos);
  two.say(R"({"type":"generate","id":"c","prompt":"x","n":2})");
  live.fake.next();
}

TEST_CASE("The memory of all bodies is limited, and short ones always get through") {
  server_options options;
  options.workers = 4; // two of them for long requests
  options.max_body_bytes = 200'000;
  options.max_body_memory = 400'000;
  live_server live(options);
  busy_tokenizer busy(live.fake, 100'000);
  raw_client first(live.port(), 0, INADDR_LOOPBACK + 1), second(live.port(), 0, INADDR_LOOPBACK + 2);
  for (auto* client : {&first, &second}) {
    client->post("/tokenize", text_of(150'000));
    CHECK(busy.begins());
  }
  raw_client third(live.port(), 0, INADDR_LOOPBACK + 3), brief(live.port());
  third.post("/tokenize", text_of(150'000));
  const auto refused = third.read_response();
  CHECK(refused.status == 503);
  CHECK(refused.headers.contains("retry-after"));
  CHECK(refused.body.find("take the 400000 bytes") != std::string::npos);
  brief.post("/tokenize", text_of(60'000));
  CHECK(brief.read_response().status == 200);
  busy.release();
  CHECK(first.read_response().status == 200);
  first.post("/tokenize", text_of(150'000));
  CHECK(first.read_response().status == 200);
}
