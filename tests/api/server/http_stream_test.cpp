#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

TEST_CASE("A streamed completion is one event per piece, then [DONE]") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"ab","stream":true,"max_tokens":5})");
  const auto request = live.fake.next();
  CHECK(request->asked.prompt == std::vector<token_id>{bos, 'a', 'b'});
  CHECK(request->asked.sampling.max_tokens == 5);

  request->text("Hi");
  const auto head = client.read_head();
  CHECK(head.status == 200);
  CHECK(head.headers.at("content-type") == "text/event-stream");
  CHECK(head.headers.at("cache-control") == "no-cache");
  CHECK(head.headers.at("transfer-encoding") == "chunked");
  CHECK_FALSE(head.headers.contains("content-length"));
  CHECK(without_ids(client.read_chunk()) ==
        "data: {\"id\":\"X\",\"object\":\"text_completion\",\"created\":X,\"model\":\"org/bytes\",\"choices\":["
        "{\"index\":0,\"text\":\"Hi\",\"logprobs\":null,\"finish_reason\":null}]}\n\n");
  request->finish();
  request->done();
  CHECK(
    without_ids(client.read_chunk()) ==
    "data: {\"id\":\"X\",\"object\":\"text_completion\",\"created\":X,\"model\":\"org/bytes\",\"choices\":["
    "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}],"
    "\"timings\":{\"cache_n\":1,\"prompt_n\":2,\"prompt_ms\":2,\"prompt_per_token_ms\":1,\"prompt_per_second\":1000,"
    "\"predicted_n\":2,\"predicted_ms\":4.25,\"predicted_per_token_ms\":2.125,\"predicted_per_second\":"
    "470.5882352941176,\"draft_n\":5,\"draft_n_accepted\":3,\"queue_ms\":0.5,\"total_ms\":6.75,"
    "\"spent_ms\":{\"decode\":4.25,\"prefill\":2,\"queue\":0.5}}}\n\ndata: [DONE]\n\n");
  CHECK(client.read_chunk().empty());
}

TEST_CASE("A streamed chat sends the role with its first piece, not before") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/chat/completions",
              R"({"messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true}})");
  const auto request = live.fake.next();
  request->text("A");
  CHECK(client.read_head().status == 200);
  const std::string head =
    "data: {\"id\":\"X\",\"object\":\"chat.completion.chunk\",\"created\":X,\"model\":\"org/bytes\",\"choices\":[";
  CHECK(without_ids(client.read_chunk()) ==
        head +
          "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"A\"},\"logprobs\":null,"
          "\"finish_reason\":null}],\"usage\":null}\n\n");
  request->text("\xc3\xa9\"\n");
  CHECK(without_ids(client.read_chunk()) ==
        head +
          "{\"index\":0,\"delta\":{\"content\":\"\xc3\xa9\\\"\\n\"},\"logprobs\":null,"
          "\"finish_reason\":null}],\"usage\":null}\n\n");
  request->finish(finish_reason::length);
  CHECK(without_ids(client.read_chunk()) ==
        head +
          "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null}],"
          "\"usage\":null}\n\n");
  request->done(finish_reason::length);
  CHECK(without_ids(client.read_chunk()) ==
        head +
          "],\"usage\":{\"prompt_tokens\":18,\"completion_tokens\":5,\"total_tokens\":23,"
          "\"prompt_tokens_details\":{\"cached_tokens\":1},\"completion_tokens_details\":"
          "{\"reasoning_tokens\":0,\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}},\"timings\":"
          "{\"cache_n\":1,\"prompt_n\":17,\"prompt_ms\":2,\"prompt_per_token_ms\":0.11764705882352941,"
          "\"prompt_per_second\":8500,\"predicted_n\":5,\"predicted_ms\":4.25,\"predicted_per_token_ms\":0.85,"
          "\"predicted_per_second\":1176.4705882352941,\"draft_n\":5,\"draft_n_accepted\":3,\"queue_ms\":0.5,"
          "\"total_ms\":6.75,\"spent_ms\":{\"decode\":4.25,\"prefill\":2,\"queue\":0.5}}}\n\ndata: [DONE]\n\n");
  CHECK(client.read_chunk().empty());
}

TEST_CASE("A connection serves one request after another, pipelined ones in order") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a","stream":true})");
  client.get("/health");
  client.post("/v1/completions", R"({"prompt":"b"})");
  client.get("/v1/models");
  const auto first = live.fake.next();
  CHECK(live.fake.nothing_submitted());
  first->text("one");
  first->finish();
  first->done();
  CHECK(client.read_response().body.find("\"text\":\"one\"") != std::string::npos);
  CHECK(client.read_response().body == R"({"status":"ok"})");
  const auto second = live.fake.next();
  second->text("two");
  second->finish();
  second->done();
  CHECK(client.read_response().body.find("\"text\":\"two\"") != std::string::npos);
  CHECK(client.read_response().body.find("\"id\":\"org/bytes\"") != std::string::npos);
}

TEST_CASE("A request is cancelled as soon as its client is gone") {
  live_server live;
  SUBCASE("before the first token, not streamed") {
    raw_client client(live.port());
    client.post("/v1/completions", R"({"prompt":"a"})");
    const auto request = live.fake.next();
    client.close();
    CHECK(request->wait_cancelled());
  }
  SUBCASE("in mid-stream, though nothing is being written") {
    raw_client client(live.port());
    client.post("/v1/completions", R"({"prompt":"a","stream":true})");
    const auto request = live.fake.next();
    request->text("x");
    client.read_until("\"x\"");
    client.close();
    CHECK(request->wait_cancelled());
    request->done(finish_reason::cancelled); // late events are ignored
  }
  SUBCASE("with several prompts") {
    raw_client client(live.port());
    client.post("/v1/completions", R"({"prompt":["a","b"],"stream":true})");
    const auto first = live.fake.next(), second = live.fake.next();
    client.close();
    CHECK(first->wait_cancelled());
    CHECK(second->wait_cancelled());
  }
}

TEST_CASE("A client that does not read has its own request paused, and resumed once it reads") {
  server_options options;
  options.sink_bytes = 16 << 10;
  live_server live(options);
  raw_client slow(live.port(), 4096), other(live.port());
  slow.post("/v1/completions", R"({"prompt":"a","stream":true,"max_tokens":100})");
  const auto request = live.fake.next();
  other.post("/v1/completions", R"({"prompt":"b","stream":true})");
  const auto free = live.fake.next();
  const std::string piece(1000, 'x');
  std::size_t sent = 0;
  // The first megabyte fills the kernel's buffers; from then on, only reading can end a pause.
  while (sent < 1'000'000 || (!request->paused() && sent < 20'000'000)) {
    request->text(piece);
    sent += piece.size();
    if (sent >= 1'000'000) { // the server, which has one thread, has seen it before it answers
      free->text("seen");
      other.read_until("seen");
    }
  }
  CHECK(request->wait_paused());
  // The queue, the kernel's buffers and the events before the pause: far less than was offered.
  CHECK(sent < 10'000'000);
  CHECK_FALSE(free->paused());
  free->text("quick");
  other.read_until("quick");

  slow.read_head();
  // Piece by piece, because more might never arrive if the pause has not ended yet.
  std::string answer;
  std::size_t received = 0;
  for (std::size_t at = 0; received < sent;) {
    answer += slow.read_chunk();
    for (std::size_t found; (found = answer.find(piece, at)) != std::string::npos; at = found + piece.size())
      received += piece.size();
  }
  CHECK(request->wait_resumed());
  request->finish();
  request->done();
  for (std::string chunk; !(chunk = slow.read_chunk()).empty();)
    answer += chunk;
  CHECK(received == sent);
  CHECK(answer.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("An error before the first piece has its own status, later ones end the stream") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a","stream":true})");
  live.fake.next()->send(error{errc::overloaded, "the queue is full", {}});
  const auto refused = client.read_response();
  CHECK(refused.status == 429);
  CHECK(refused.headers.at("retry-after") == "1");
  CHECK(
    refused.body ==
    R"({"error":{"message":"the queue is full","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}})");

  client.post("/v1/completions", R"({"prompt":"a","stream":true})");
  const auto request = live.fake.next();
  request->text("x");
  client.read_head();
  client.read_chunk();
  request->send(error{errc::device, "it broke", {}});
  CHECK(client.read_chunk() ==
        "data: {\"error\":{\"message\":\"it broke\",\"type\":\"server_error\",\"param\":null,"
        "\"code\":\"device_error\"}}\n\ndata: [DONE]\n\n");
  CHECK(client.read_chunk().empty());
  CHECK(client.read_all().empty());
}

TEST_CASE("When one of several prompts is refused, the others are cancelled") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":["a","b"]})");
  const auto first = live.fake.next(), second = live.fake.next();
  second->send(error{errc::overloaded, "the queue is full", {}});
  CHECK(client.read_response().status == 429);
  CHECK(first->wait_cancelled());
}

TEST_CASE("HTTP/1.0 clients get a stream that ends with the connection") {
  live_server live;
  raw_client client(live.port());
  const std::string body = R"({"prompt":"a","stream":true})";
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const auto request = live.fake.next();
  request->text("x");
  request->finish();
  request->done();
  const auto all = client.read_all();
  CHECK(all.find("chunked") == std::string::npos);
  CHECK(all.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("Prompts are scored without an answer, and count as no first token") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":[[97,98],[99]],"echo":true,"logprobs":1,"max_tokens":0})");
  const auto first = live.fake.next(), second = live.fake.next();
  CHECK(first->asked.sampling.scores_only());
  second->score_prompt();
  first->score_prompt();
  second->done(finish_reason::length);
  first->done(finish_reason::length);
  const auto body = client.read_response().body;
  CHECK(body.find(R"({"index":0,"text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[null,-1.5],)"
                  R"("top_logprobs":[null,{"\u0000":-0.5,"b":-1.5}],"text_offset":[0,1]},"finish_reason":"length")") !=
        std::string::npos);
  CHECK(body.find(R"({"index":1,"text":"c","logprobs":{"tokens":["c"],"token_logprobs":[null],)"
                  R"("top_logprobs":[null],"text_offset":[0]},"finish_reason":"length")") != std::string::npos);
  CHECK(body.find(R"("completion_tokens":0,)") != std::string::npos);
  client.get("/metrics");
  CHECK(client.read_response().body.find("troupe_time_to_first_token_seconds_count 0\n") != std::string::npos);
}

TEST_CASE("A streamed echo with logprobs starts with the whole prompt") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":[97,98,99],"echo":true,"logprobs":0,"stream":true})");
  const auto request = live.fake.next();
  request->score_prompt();
  CHECK(client.read_head().status == 200);
  CHECK(client.read_chunk().find(
          R"("text":"abc","logprobs":{"tokens":["a","b","c"],"token_logprobs":[null,-1.5,-1.5])") != std::string::npos);
  request->text("d");
  CHECK(client.read_chunk().find(R"("text":"d",)") != std::string::npos);
  request->finish();
  request->done();
  const auto last = client.read_chunk();
  CHECK(last.find(R"("finish_reason":"stop")") != std::string::npos);
  CHECK(last.ends_with("data: [DONE]\n\n"));
  CHECK(client.read_chunk().empty());
}

TEST_CASE("Choices of several prompts and sequences are numbered consecutively") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":["a",[98]],"n":2,"echo":true,"return_token_ids":true})");
  const auto first = live.fake.next(), second = live.fake.next();
  second->text("4", 1);
  first->text("1", 0);
  second->text("3", 0);
  first->text("2", 1);
  for (const auto& request : {first, second}) {
    request->finish(finish_reason::stop, 0);
    request->finish(finish_reason::length, 1);
    request->done();
  }
  CHECK(without_ids(client.read_response().body) ==
        "{\"id\":\"X\",\"object\":\"text_completion\",\"created\":X,\"model\":\"org/bytes\",\"choices\":["
        "{\"index\":0,\"text\":\"a1\",\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null,"
        "\"token_ids\":[49],\"prompt_token_ids\":[256,97]},"
        "{\"index\":1,\"text\":\"a2\",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,"
        "\"token_ids\":[50],\"prompt_token_ids\":[256,97]},"
        "{\"index\":2,\"text\":\"b3\",\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null,"
        "\"token_ids\":[51],\"prompt_token_ids\":[98]},"
        "{\"index\":3,\"text\":\"b4\",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,"
        "\"token_ids\":[52],\"prompt_token_ids\":[98]}],"
        "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7,"
        "\"prompt_tokens_details\":{\"cached_tokens\":2},\"completion_tokens_details\":"
        "{\"reasoning_tokens\":0,\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}},\"timings\":"
        "{\"cache_n\":2,\"prompt_n\":1,\"prompt_ms\":2,\"prompt_per_token_ms\":2,\"prompt_per_second\":500,"
        "\"predicted_n\":4,\"predicted_ms\":4.25,\"predicted_per_token_ms\":1.0625,\"predicted_per_second\":"
        "941.1764705882352,\"draft_n\":10,\"draft_n_accepted\":6,\"queue_ms\":0.5,\"total_ms\":6.75,"
        "\"spent_ms\":{\"decode\":4.25,\"prefill\":2,\"queue\":0.5}}}");
}
