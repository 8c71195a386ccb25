#include "tests/api/openai/busy_tokenizer.hpp"
#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

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
