// What goes to a process that takes a server's place. That streams go on there is tested with real ones, in
// tests/e2e/test_handover.py.
#include "api/openai/answer_writer.hpp"
#include "api/openai/object_id.hpp"
#include "api/server/hand_over.hpp"
#include "tests/api/server/replaced_server.hpp"
#include "tests/api/server/websocket_client.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>

using namespace troupe;
using namespace troupe::test;

TEST_CASE("A request that moves is the same behind its message") {
  moving_request one;
  one.id = "r-1";
  one.route = "POST /v1/completions";
  one.from = {"127.0.0.1", "10.0.0.1", "alice", {}};
  one.body = "{\"prompt\":\"\\u00e9\xc3\xa9\\\"\"}";
  one.draws.bytes = std::string("\0\xff\x10", 3);
  one.draws.created = 1234567890;
  one.tokens = std::make_shared<const std::vector<begun_sequence>>(std::vector<begun_sequence>{
    {{1, 2, 300'000}, 0.1f, begun_sequence::end::none}, {{}, 0, begun_sequence::end::length}});
  one.version = 10;
  one.keep_alive = false;
  one.head_sent = true;
  one.headers = {{"Access-Control-Allow-Origin", "*"}};
  one.read_ahead = std::string("GET /\r\n\0", 8);
  one.spent_ms = 77;
  const auto back = moving_request_in(to_message(one));
  REQUIRE(back);
  CHECK(back->id == one.id);
  CHECK(back->route == one.route);
  CHECK(back->from.client == one.from.client);
  CHECK(back->from.forwarded_for == one.from.forwarded_for);
  CHECK(back->from.key == one.from.key);
  CHECK(back->body == one.body);
  CHECK(back->draws.bytes == one.draws.bytes);
  CHECK(back->draws.created == one.draws.created);
  REQUIRE(back->tokens);
  REQUIRE(back->tokens->size() == 2);
  CHECK(back->tokens->at(0).emitted == one.tokens->at(0).emitted);
  CHECK(back->tokens->at(0).mirostat_mu == 0.1f);
  CHECK(back->tokens->at(1).ended == begun_sequence::end::length);
  CHECK(back->version == 10);
  CHECK_FALSE(back->keep_alive);
  CHECK(back->head_sent);
  CHECK(back->headers == one.headers);
  CHECK(back->read_ahead == one.read_ahead);
  CHECK(back->spent_ms == 77);
  CHECK(moving_request_in(connection_message()) == nullptr);
  CHECK_THROWS_AS(moving_request_in("{"), failure);
}

TEST_CASE("What a request draws by chance is drawn again in the same order, and new behind that") {
  request_draws draws;
  std::string first, second;
  {
    const drawing_for its(draws);
    first = object_id("a-");
  }
  CHECK(object_id("a-") != first);
  draws.next = 0;
  const drawing_for its(draws);
  CHECK(object_id("a-") == first);
  second = object_id("a-");
  CHECK(second != first);
  draws.next = 0;
  CHECK(object_id("a-") == first);
  CHECK(object_id("a-") == second);
}

TEST_CASE("Requests move only where their tokens alone tell what follows") {
  const auto movable = [](const std::function<void(generation_job&)>& change, std::string_view body = "{}") {
    generation_job job;
    auto& one = job.prompts.emplace_back();
    one.sampling.n = 2;
    change(job);
    return is_movable(job, body);
  };
  CHECK(movable([](auto&) {}));
  CHECK_FALSE(movable([](auto& job) { job.prompts.emplace_back(); }));
  CHECK_FALSE(movable([](auto& job) { job.prompts.clear(); }));
  CHECK_FALSE(movable([](auto& job) { job.prompts[0].sampling.logprobs = 0; }));
  CHECK_FALSE(movable([](auto& job) { job.prompts[0].sampling.prompt_logprobs = 0; }));
  CHECK_FALSE(movable([](auto& job) { job.prompts[0].sampling.best_of = 3; }));
  CHECK_FALSE(movable([](auto& job) { job.prompts[0].sampling.max_tokens = 0; }));
  CHECK_FALSE(movable([](auto& job) { job.prompts[0].embed = pooling::last; }));
  CHECK_FALSE(movable([](auto&) {}, R"({"previous_response_id":"resp_1"})"));
}

TEST_CASE("A successor has a model if its name and all that its tokens depend on are the same") {
  const auto its = [](std::string text) { return successor_of(nullptr, text); };
  served_model model;
  model.id = "m";
  model.identity = "abc";
  fake_service none;
  const auto own = describe_models(none);
  const auto at = own.find("\"version\":\"");
  const auto version = '{' + own.substr(at, own.find(",\"models\"") - at) + ",\"models\":";
  CHECK(its(version + R"({"m":"abc"}})").has(model, "m"));
  const auto renamed = its(version + R"({"m":"abc","":"abd","fast":"abd","also":"abc"}})");
  CHECK(renamed.has(model, "also"));
  CHECK_FALSE(renamed.has(model, "fast")); // its name is another model's now
  CHECK_FALSE(renamed.has(model, ""));
  CHECK_FALSE(renamed.has(model, "unknown")); // as good as none
  CHECK_FALSE(its(version + R"({"m":"abd"}})").has(model, "m"));
  CHECK_FALSE(its(version + R"({"n":"abc"}})").has(model, "m"));
  CHECK_FALSE(its(R"({"version":"0.0.1","models":{"m":"abc"}})").has(model, "m"));
  CHECK(its(version + "{}}").same_program);
  for (const std::string key : {"\"version\":\"", "\"build\":\""}) {
    auto other = version + R"({"m":"abc"}})";
    other.insert(other.find(key) + key.size(), "0");
    CHECK_FALSE(its(other).same_program);
    CHECK_FALSE(its(other).has(model, "m"));
  }
  model.identity.clear();
  CHECK_FALSE(its(version + R"({"m":""}})").has(model, "m"));
}

TEST_CASE(
  "Idle connections go to the server that takes another's place, and a busy one does once its stream has ended") {
  line_to_successor line;
  live_server next;
  live_server old;
  raw_client idle(old.port()), kept(old.port()), busy(old.port());
  begun_stream stream(old, busy);
  std::string metrics;
  while (metrics.find("\ntroupe_connections 3\n") == std::string::npos) { // until `idle` is accepted
    kept.get("/metrics"); // on a connection of its own, the question could be given away, too
    metrics = kept.read_response().body;
  }
  const auto take = [&] {
    auto given = line.there.receive();
    REQUIRE(given);
    REQUIRE(given->file);
    next.take(given->text, std::move(given->file));
  };
  const auto is_served = [](raw_client& client) {
    client.get("/v1/models");
    return client.read_response().status == 200;
  };
  old.give_to(line.here, R"({"version":"another"})", std::chrono::minutes(1));
  take();
  take();
  CHECK(is_served(idle));
  CHECK(is_served(kept));
  stream.finish();
  take();
  CHECK(is_served(busy));
  old.wait(); // it ends by itself
}

TEST_CASE("What still runs when the grace of a replaced server is over ends with an error, and then the server does") {
  const line_to_successor line;
  live_server old;
  raw_client stream(old.port()), whole(old.port());
  ws_client socket(old.port());
  const begun_stream streamed(old, stream);
  whole.post("/v1/completions", R"({"prompt":"a"})");
  const auto asked = old.fake.next();
  socket.say(R"({"type":"generate","prompt":"x","id":"a"})");
  const auto framed = old.fake.next();
  old.give_to(line.here, R"({"version":"another"})", std::chrono::milliseconds(1));
  CHECK(stream.read_until("[DONE]").find("the server is stopping") != std::string::npos);
  CHECK(whole.read_response().status == 503);
  CHECK(socket.hear().find("the server is stopping") != std::string::npos);
  const auto farewell = socket.read_frame();
  CHECK(farewell.close_code() == 1012);
  CHECK(farewell.data.substr(2) == "another process takes the server's place: connect again");
  socket.send_frame(8, farewell.data.substr(0, 2));
  for (const auto& one : {streamed.request, asked, framed})
    CHECK(one->wait_cancelled());
  for (auto* client : {&stream, &whole, static_cast<raw_client*>(&socket)})
    client->close(); // else the server waits for that, for two seconds
  old.wait();        // it ends by itself
}
