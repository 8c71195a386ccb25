#include "tests/api/server/websocket_client.hpp"

#include "runtime/support/json/json.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

std::string error_about(std::string_view id, std::string_view param, std::string_view text) {
  const auto parsed = json::document::parse(text, "the frame");
  std::string_view found_id = "null", found_param = "null", type;
  if (const auto v = json::find(parsed.root(), "id"))
    found_id = *v;
  const auto fault = json::find(parsed.root(), "error");
  if (!fault)
    return "no error";
  if (const auto v = json::find(*fault, "param"))
    found_param = *v;
  if (const auto v = json::find(parsed.root(), "type"))
    type = *v;
  return type == "error" && found_id == id && found_param == param ? "as expected" : std::string(text);
}

} // namespace

TEST_CASE("A WebSocket streams tokens and ends with usage and timings") {
  live_server live;
  ws_client client(live.port());
  REQUIRE(client.upgrade.status == 101);
  CHECK(client.upgrade.headers.at("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  client.say(R"({"type":"generate","id":"a","prompt":"x","max_tokens":4,"logprobs":1})");
  const auto request = live.fake.next();
  CHECK(request->asked.sampling.max_tokens == 4);
  request->text("Hi");
  CHECK(client.hear() == R"({"type":"token","id":"a","index":0,"position":0,"text":"Hi","token_ids":[72,105]})");
  token_event with;
  with.position = 2;
  with.text = "!";
  with.token_ids = {33};
  with.logprobs.push_back({33, -0.5f, {{33, -0.5f}, {63, -1.5f}}, {}});
  request->send(with);
  CHECK(client.hear() ==
        R"({"type":"token","id":"a","index":0,"position":2,"text":"!","token_ids":[33],"logprobs":[{"token":"!",)"
        R"("logprob":-0.5,"bytes":[33],"top_logprobs":[{"token":"!","logprob":-0.5,"bytes":[33]},)"
        R"({"token":"?","logprob":-1.5,"bytes":[63]}]}],"top_token_ids":[[33,63]]})");
  request->finish();
  request->done();
  CHECK(
    client.hear() ==
    R"({"type":"done","id":"a","choices":[{"index":0,"finish_reason":"stop"}],)"
    R"("usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,)"
    R"("prompt_tokens_details":{"cached_tokens":1},)"
    R"("completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},)"
    R"("timings":{"queue_ms":0.5,"prefill_ms":2,"decode_ms":4.25,"total_ms":6.75,)"
    R"("spent_ms":{"decode":4.25,"prefill":2,"queue":0.5},"cached_tokens":1,"draft_n":5,"draft_n_accepted":3}})");
}

TEST_CASE("A WebSocket sends a prompt's scores ahead of its tokens") {
  live_server live;
  ws_client client(live.port());
  client.say(R"({"type":"generate","id":"a","prompt":[97,98,99],"prompt_logprobs":0})");
  const auto request = live.fake.next();
  request->score_prompt();
  CHECK(client.hear() ==
        R"({"type":"prompt","id":"a","position":0,"token_ids":[97],"logprobs":[)"
        R"({"token":"a","logprob":null,"bytes":[97],"top_logprobs":[]}]})");
  CHECK(client.hear().starts_with(R"({"type":"prompt","id":"a","position":1,"token_ids":[98,99],"logprobs":[)"
                                  R"({"token":"b","logprob":-1.5,)"));
  request->text("d");
  CHECK(client.hear() == R"({"type":"token","id":"a","index":0,"position":0,"text":"d","token_ids":[100]})");
  request->finish();
  request->done();
  CHECK(client.hear().starts_with(R"({"type":"done","id":"a",)"));
}

TEST_CASE("Many requests share a WebSocket, and an id is free again when its request ends") {
  live_server live;
  ws_client client(live.port());
  client.say(R"({"type":"generate","id":"a","prompt":"1"})");
  const auto a = live.fake.next();
  client.say(R"({"type":"generate","id":"b","messages":[{"role":"user","content":"2"}]})");
  const auto b = live.fake.next();
  b->text("B");
  CHECK(client.hear().find(R"("id":"b")") != std::string::npos);
  a->text("A");
  CHECK(client.hear().find(R"("id":"a")") != std::string::npos);
  client.say(R"({"type":"generate","id":"a","prompt":"1"})");
  CHECK(error_about("a", "id", client.hear()) == "as expected");
  a->done();
  CHECK(client.hear().find(R"("type":"done","id":"a")") != std::string::npos);
  client.say(R"({"type":"generate","id":"a","prompt":"3"})");
  CHECK(live.fake.next()->asked.prompt.back() == '3');
  CHECK_FALSE(b->cancelled());
}

TEST_CASE("A request is cancelled by its id, the others go on") {
  live_server live;
  ws_client client(live.port());
  client.say(R"({"type":"generate","id":"a","prompt":"1"})");
  const auto a = live.fake.next();
  client.say(R"({"type":"generate","id":"b","prompt":"2"})");
  const auto b = live.fake.next();
  client.say(R"({"type":"cancel","id":"a"})");
  CHECK(a->wait_cancelled());
  a->done(finish_reason::cancelled);
  CHECK(client.hear().find(R"("choices":[{"index":0,"finish_reason":"cancelled"}])") != std::string::npos);
  CHECK_FALSE(b->cancelled());
  client.say(R"({"type":"cancel","id":"a"})");
  CHECK(error_about("a", "id", client.hear()) == "as expected");
}

TEST_CASE("Invalid frames get an error, and the WebSocket stays open") {
  live_server live;
  ws_client client(live.port());
  client.say("nonsense");
  CHECK(error_about("null", "null", client.hear()) == "as expected");
  client.say("[1]");
  CHECK(error_about("null", "null", client.hear()) == "as expected");
  client.say(R"({"type":"dance","id":"a"})");
  CHECK(error_about("a", "type", client.hear()) == "as expected");
  client.say(R"({"type":"generate","prompt":"x"})");
  CHECK(error_about("null", "id", client.hear()) == "as expected");
  client.say(R"({"type":"generate","id":"a","prompt":"x","temperature":-1})");
  CHECK(error_about("a", "temperature", client.hear()) == "as expected");
  client.say("{\"type\":\"generate\",\"id\":\"long\",\"prompt\":\"" + std::string(20'000, 'x') + "\"}");
  CHECK(error_about("long", "prompt", client.hear()) == "as expected");
  client.send_frame(2, R"({"type":"generate","id":"a","prompt":"x"})");
  CHECK(error_about("null", "null", client.hear()) == "as expected");
  client.send_frame(9, "are you there");
  const auto pong = client.read_frame();
  CHECK(pong.opcode == 10);
  CHECK(pong.data == "are you there");
  client.say(R"({"type":"generate","id":"a","prompt":"x"})");
  live.fake.next()->send(error{errc::overloaded, "full", {}});
  CHECK(error_about("a", "null", client.hear()) == "as expected");
}

TEST_CASE("The error frame of a request that had begun tells where its time went, and no other does") {
  live_server live;
  ws_client client(live.port());
  const auto timed = [&] {
    const auto parsed = json::document::parse(client.hear(), "the frame");
    const auto timings = json::find(parsed.root(), "timings");
    if (!timings)
      return false;
    double sum = 0;
    for (const auto part : json::object(*json::find(*timings, "spent_ms")))
      sum += double(part.value);
    CHECK(sum > 0);
    CHECK(sum == doctest::Approx(double(*json::find(*timings, "total_ms"))));
    return true;
  };
  client.say("[1]");
  CHECK_FALSE(timed());
  client.say(R"({"type":"cancel","id":"a"})");
  CHECK_FALSE(timed());
  client.say(R"({"type":"generate","id":"a","prompt":"x","temperature":-1})");
  CHECK(timed());
  client.say(R"({"type":"generate","id":"a","prompt":"x"})");
  const auto request = live.fake.next();
  client.say(R"({"type":"generate","id":"a","prompt":"x"})"); // which is in use
  CHECK_FALSE(timed());
  request->send(error{errc::overloaded, "full", {}});
  CHECK(timed());
}

TEST_CASE("A frame over the limit closes the WebSocket with 1009") {
  server_options options;
  options.max_frame_bytes = 1000;
  live_server live(options);
  ws_client client(live.port());
  client.say(R"({"type":"generate","id":"a","prompt":"x"})");
  const auto request = live.fake.next();
  client.say(std::string(1001, ' '));
  const auto closed = client.read_frame();
  CHECK(closed.opcode == 8);
  CHECK(closed.close_code() == 1009);
  CHECK(request->wait_cancelled());
}

TEST_CASE("Text that is not UTF-8 closes the WebSocket with 1007") {
  live_server live;
  ws_client client(live.port());
  client.say("\xff\xfe");
  CHECK(client.read_frame().close_code() == 1007);
}

TEST_CASE("A client that leaves has all its requests cancelled") {
  live_server live;
  const auto start = [&](ws_client& client) {
    std::vector<std::shared_ptr<fake_request>> all;
    for (const auto* id : {"a", "b", "c"}) {
      client.say(R"({"type":"generate","prompt":"x","id":")" + std::string(id) + "\"}");
      all.push_back(live.fake.next());
    }
    return all;
  };
  SUBCASE("by a closing handshake") {
    ws_client client(live.port());
    const auto all = start(client);
    client.send_frame(8, std::string("\x03\xe8", 2));
    CHECK(client.read_frame().opcode == 8);
    for (const auto& request : all)
      CHECK(request->wait_cancelled());
    CHECK(client.read_all().empty()); // the server hangs up even if the client does not
  }
  SUBCASE("without a word") {
    ws_client client(live.port());
    const auto all = start(client);
    client.close();
    for (const auto& request : all)
      CHECK(request->wait_cancelled());
  }
}

TEST_CASE("The number of requests on a WebSocket is limited") {
  server_options options;
  options.max_requests_per_socket = 2;
  live_server live(options);
  ws_client client(live.port());
  for (const auto* id : {"a", "b", "c"})
    client.say(R"({"type":"generate","prompt":"x","id":")" + std::string(id) + "\"}");
  CHECK(error_about("c", "null", client.hear()) == "as expected");
  live.fake.next()->done();
  client.hear();
  client.say(R"({"type":"generate","prompt":"x","id":"d"})");
  live.fake.next();
  CHECK(live.fake.next()->asked.prompt.size() == 2);
}

TEST_CASE("A WebSocket that is not read has all of its requests paused, and resumed once it is read") {
  server_options options;
  options.sink_bytes = 16 << 10;
  live_server live(options);
  ws_client slow(live.port(), {}, 4096), other(live.port());
  slow.say(R"({"type":"generate","id":"a","prompt":"x"})");
  const auto a = live.fake.next();
  slow.say(R"({"type":"generate","id":"b","prompt":"x"})");
  const auto b = live.fake.next();
  other.say(R"({"type":"generate","id":"a","prompt":"x"})");
  const auto free = live.fake.next();
  const std::string piece(1000, 'x');
  std::size_t sent = 0;
  // The first megabyte fills the kernel's buffers; from then on, only reading can end a pause.
  for (; sent < 1000 || (!a->paused() && sent < 20'000); ++sent) {
    a->text(piece);
    if (sent >= 1000) { // the server, which has one thread, has seen it before it answers
      free->text("x");
      other.hear();
    }
  }
  CHECK(a->wait_paused());
  CHECK(b->wait_paused());
  CHECK(sent < 10'000);
  CHECK_FALSE(free->paused());
  free->text("quick");
  CHECK(other.hear().find("quick") != std::string::npos);
  for (std::size_t i = 0; i < sent; ++i)
    CHECK(slow.hear().find(piece) != std::string::npos);
  CHECK(a->wait_resumed());
  CHECK(b->wait_resumed());
}

TEST_CASE("Keys and origins are checked before the upgrade") {
  server_options options;
  options.api_keys = {"k"};
  options.cors_origins = {"http://good.example"};
  live_server live(options);
  const auto status = [&](std::string_view headers) { return ws_client(live.port(), headers).upgrade.status; };
  CHECK(status({}) == 401);
  CHECK(status("Authorization: Bearer k\r\n") == 101);
  CHECK(status("Authorization: Bearer k\r\nOrigin: http://good.example\r\n") == 101);
  CHECK(status("Authorization: Bearer k\r\nOrigin: http://localhost\r\n") == 101); // the same host
  CHECK(status("Authorization: Bearer k\r\nOrigin: http://bad.example\r\n") == 403);
  raw_client plain(live.port());
  plain.get("/v1/ws", "Authorization: Bearer k\r\n");
  const auto answer = plain.read_response();
  CHECK(answer.status == 426);
  CHECK(answer.headers.at("upgrade") == "websocket");
}

TEST_CASE("While the model loads, a WebSocket is open and its requests are refused") {
  live_server live;
  live.fake.set_loading();
  ws_client client(live.port());
  client.say(R"({"type":"generate","id":"a","prompt":"x"})");
  CHECK(error_about("a", "null", client.hear()) == "as expected");
}

TEST_CASE("Stopping closes WebSockets with 1001 once their requests are done") {
  live_server live;
  ws_client busy(live.port()), idle(live.port());
  busy.say(R"({"type":"generate","id":"a","prompt":"x"})");
  const auto request = live.fake.next();
  live.begin_stop();
  CHECK(idle.read_frame().close_code() == 1001);
  idle.send_frame(8, std::string("\x03\xe9", 2));
  request->done();
  CHECK(busy.hear().find("\"done\"") != std::string::npos);
  CHECK(busy.read_frame().close_code() == 1001);
  busy.send_frame(8, std::string("\x03\xe9", 2));
  idle.close();
  busy.close();
  live.stop();
}

TEST_CASE("A silent peer is disconnected") {
  server_options options;
  options.idle_timeout = std::chrono::seconds(1);
  bool asked = false;
  for (int tries = 0; !asked && tries < 5;
       ++tries, options.idle_timeout *= 4) { // where this process waits for the machine
    live_server live(options);
    try {
      ws_client client(live.port());
      client.say(R"({"type":"generate","id":"a","prompt":"x"})");
      const auto ping = client.read_frame();
      CHECK(ping.opcode == 9); // it stays unanswered
      client.read_all();
    } catch (const std::runtime_error&) { // it was disconnected before that
    }
    asked = !live.fake.nothing_submitted();
    CHECK((!asked || live.fake.next()->wait_cancelled()));
  }
  CHECK(asked);
}

TEST_CASE("A WebSocket request without memory for it is answered, and its id is free again") {
  live_server live;
  ws_client client(live.port());
  for (const bool enough : {false, true}) {
    if (!enough)
      live.fake.run_short_of_memory();
    client.say(R"({"type":"generate","id":"a","prompt":"x"})");
    if (enough)
      live.fake.next()->done();
    CHECK(client.hear().find(enough ? "\"done\"" : "there is not enough memory for this request") != std::string::npos);
  }
}

TEST_CASE("A WebSocket tells which fields of a request nothing reads, with its end") {
  live_server live;
  ws_client client(live.port());
  client.say(R"({"type":"generate","id":"a","prompt":"x","max_token":4})");
  const auto request = live.fake.next();
  request->done();
  CHECK(client.hear().ends_with(
    R"(,"warnings":["`max_token` is not known here and has no effect; did you mean `max_tokens`?"]})"));
  client.say(R"({"type":"generate","id":"b","prompt":"x","max_tokens":4})");
  live.fake.next()->done();
  CHECK(client.hear().find("warnings") == std::string::npos);
}
