// Who watches the engine's steps over a WebSocket, and traces.
#include "api/server/wire/watch_frames.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/api/server/websocket_client.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

std::shared_ptr<const step_record> record_of(std::uint64_t step, int replica = 0) {
  step_record r;
  r.step = step, r.replica = replica, r.ms = 2.5;
  r.end = std::chrono::steady_clock::time_point(std::chrono::milliseconds(1000 + 10 * step));
  r.rows.decode = 2;
  r.sequences.running = 2;
  r.lanes = {{{7, 0}, step_lane::kind::decode, 1, 40}, {{8, 1}, step_lane::kind::blocks, 0, 0}};
  r.copies = {3};
  return std::make_shared<const step_record>(r);
}

std::string type_of(const std::string& frame) {
  const auto parsed = json::document::parse(frame, "the frame");
  return std::string(std::string_view(*json::find(parsed.root(), "type")));
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1))
    ++n;
  return n;
}

/// Waits until the service has so many watchers: they come and go on other threads than those that tell clients.
bool becomes(const fake_service& fake, std::size_t watchers) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (fake.watchers() != watchers && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return fake.watchers() == watchers;
}

} // namespace

TEST_CASE("A frame has the steps since the last one, without what is 0, and the engine as it is") {
  step_ring ring(2);
  for (std::uint64_t step = 1; step <= 3; ++step)
    ring.add(record_of(step));
  engine_snapshot now;
  now.replicas = {{0, 1, 4, "f1c2"}, {1, 0, 4, "ffff", replica_role::decode}};
  now.actors = {{"scheduler", 1, 2, 30, 4, 0.5}};
  const auto frame = watch_frame("w", ring.take(), now);
  CHECK(frame.find(R"("lost":1,"steps":[{"step":2,"replica":0,"end_ms":1020,"ms":2.5,"decode":2,"running":2,)"
                   R"("lanes":[[7,0,"decode",1,40],[8,1,"blocks",0,0]],"copies":[3]},{"step":3,)") != frame.npos);
  CHECK(frame.find(R"("replicas":[{"number":0,"restarts":1,"blocks":4,"map":"f1c2"},)"
                   R"({"number":1,"restarts":0,"blocks":4,"map":"ffff","role":"decode"}])") != frame.npos);
  CHECK(
    frame.find(R"("actors":[{"kind":"scheduler","alive":1,"spawned":2,"handled":30,"queued":4,"waiting_ms":0.5}])") !=
    frame.npos);
  CHECK(frame.find("prefill") == frame.npos);
  CHECK(watch_frame("w", ring.take(), {}).find(R"("lost":0,"steps":[],"replicas":[],"actors":[])") !=
        std::string::npos);
}

namespace {

/// In two parts.
std::string written(std::span<const step_ring::record_ptr> steps) {
  trace_writer writer;
  auto text = writer.add(steps.first(steps.size() / 2));
  text += writer.add(steps.subspan(steps.size() / 2));
  return text + writer.end();
}

} // namespace

TEST_CASE("A trace has a process for each replica, with a track of its steps and one for each sequence") {
  const std::vector<step_ring::record_ptr> steps{record_of(1), record_of(2), record_of(1, 1)};
  const auto trace = written(steps);
  CHECK_NOTHROW(json::document::parse(trace, "the trace"));
  CHECK(count_of(trace, R"("name":"process_name")") == 2);
  CHECK(count_of(trace, R"("name":"thread_name")") == 2 + 4);
  CHECK(count_of(trace, R"("name":"request 8.1")") == 2);
  CHECK(count_of(trace, R"("name":"waits for blocks")") == 3);
  CHECK(trace.find(
          R"({"ph":"X","name":"step 1","pid":0,"tid":0,"ts":1007500,"dur":2500,"args":{"decode":2,"running":2}})") !=
        trace.npos);
  auto waiting = *record_of(1);
  using kind = step_lane::kind;
  waiting.lanes = {{{1, 0}, kind::turn}, {{2, 0}, kind::queue}, {{3, 0}, kind::preempted}, {{4, 0}, kind::paused}};
  const std::vector<step_ring::record_ptr> one{std::make_shared<const step_record>(waiting)};
  const auto gaps = written(one);
  for (const auto* name : {"waits for its turn", "in the queue", "preempted", "paused by its reader"})
    CHECK(count_of(gaps, R"("name":")" + std::string(name) + '"') == 1);
  CHECK(written({}) == R"({"traceEvents":[],"displayTimeUnit":"ms"})");
}

TEST_CASE("A watcher gets frames of steps beside its requests, until it cancels") {
  live_server live;
  ws_client client(live.port());
  client.say(R"({"type":"watch","id":"w","interval_ms":50})");
  CHECK(type_of(client.hear()) == "watch"); // at once, of an engine that does nothing
  REQUIRE(becomes(live.fake, 1));
  live.fake.tell_step(record_of(5));
  std::string frame;
  while ((frame = client.hear()).find(R"("step":5)") == frame.npos)
    REQUIRE(type_of(frame) == "watch");
  client.say(R"({"type":"generate","id":"a","prompt":"x","max_tokens":4})");
  const auto request = live.fake.next();
  request->text("Hi");
  while (type_of(frame = client.hear()) == "watch") {
  }
  CHECK(type_of(frame) == "token");
  const auto refused = [&](std::string_view what, std::string_view why) {
    client.say(what);
    while (type_of(frame = client.hear()) == "watch") {
    }
    CHECK(type_of(frame) == "error");
    CHECK_MESSAGE(frame.find(why) != frame.npos, frame);
  };
  refused(R"({"type":"watch","id":"v"})", "this connection watches already");
  refused(R"({"type":"watch","id":"w"})", "still running");
  refused(R"({"type":"generate","id":"w","prompt":"x"})", "still running");
  refused(R"({"type":"watch","id":"a"})", "still running");
  client.say(R"({"type":"cancel","id":"w"})");
  while (type_of(frame = client.hear()) == "watch") {
  }
  CHECK(frame == R"({"type":"done","id":"w"})");
  CHECK(becomes(live.fake, 0));
  refused(R"({"type":"cancel","id":"w"})", "no request");
  refused(R"({"type":"watch","id":"w","interval_ms":1})", "interval_ms");
  refused(R"({"type":"watch","id":"w","interval_ms":"5"})", "interval_ms");
  client.say(R"({"type":"watch","id":"w"})");
  CHECK(type_of(client.hear()) == "watch");
  request->finish();
  request->done();
}

TEST_CASE("A watch is of the model that its frame names, else its connection, else the first") {
  live_server live;
  const auto looks_at = [&](const std::string& query, std::string_view named) {
    ws_client client(live.port(), {}, 0, query);
    client.say(R"({"type":"watch","id":"w")" + std::string(named) + "}");
    return client.hear();
  };
  constexpr auto first = R"("number":0)", of_name = R"("number":7)", no_such = "the model `x` does not exist";
  CHECK(looks_at("", "").find(first) != std::string::npos);
  CHECK(looks_at("", R"(,"model":"org/bytes")").find(of_name) != std::string::npos);
  CHECK(looks_at("?model=org%2Fbytes", "").find(of_name) != std::string::npos);
  CHECK(looks_at("?model=x", R"(,"model":"org/bytes")").find(of_name) != std::string::npos);
  CHECK(looks_at("?model=x", "").find(no_such) != std::string::npos);
  CHECK(looks_at("?model=org/bytes", R"(,"model":"x")").find(no_such) != std::string::npos);
  CHECK(looks_at("", R"(,"model":5)").find("`model`") != std::string::npos);
  raw_client client(live.port());
  client.get("/debug/trace?model=x&seconds=1");
  CHECK(client.read_response().status == 404);
  client.get("/debug/trace?model=org%2Fbytes");
  CHECK(client.read_response().status == 200);
}

TEST_CASE("A watch ends with its connection, and of one client there are no more than 8") {
  live_server live;
  {
    std::vector<std::unique_ptr<ws_client>> clients;
    for (int i = 0; i < 9; ++i) {
      clients.push_back(std::make_unique<ws_client>(live.port()));
      clients.back()->say(R"({"type":"watch","id":"w","interval_ms":60000})");
      CHECK(type_of(clients.back()->hear()) == (i < 8 ? "watch" : "error"));
    }
    CHECK(becomes(live.fake, 8));
  }
  CHECK(becomes(live.fake, 0));
  ws_client again(live.port());
  again.say(R"({"type":"watch","id":"w"})");
  CHECK(type_of(again.hear()) == "watch");
}

TEST_CASE("A watcher that does not read loses steps, and the server keeps no more of them") {
  live_server live;
  live.fake.map = std::string(16'000, 'f');
  ws_client slow(live.port(), {}, 4096);
  slow.say(R"({"type":"watch","id":"w","interval_ms":50})");
  CHECK(becomes(live.fake, 1));
  const std::uint64_t all = 200'000;
  for (std::uint64_t step = 1; step <= all; ++step)
    live.fake.tell_step(record_of(step));
  std::uint64_t lost = 0, heard = 0;
  for (std::string frame; frame.find("\"step\":" + std::to_string(all) + ",") == frame.npos;) {
    frame = slow.hear();
    const auto parsed = json::document::parse(frame, "the frame");
    lost += std::uint64_t(*json::find(parsed.root(), "lost"));
    heard += count_of(frame, "\"step\":");
    CHECK(count_of(frame, "\"step\":") <= most_watched_steps);
  }
  CHECK(lost + heard == all);
  CHECK(lost > 0);
}

TEST_CASE("Records that nobody fetches are bounded in bytes, and fetched in portions") {
  step_ring ring(1'000'000);
  auto large = *record_of(1);
  large.lanes.resize(256);
  const auto record = std::make_shared<const step_record>(large);
  for (int i = 0; i < 20'000; ++i)
    ring.add(record);
  const auto some = ring.take(100'000);
  CHECK(some.lost > 10'000);
  CHECK(some.records.size() > 1);
  CHECK(some.records.size() < 50);
  CHECK_FALSE(ring.empty());
  CHECK(some.lost + some.records.size() + ring.take().records.size() == 20'000);
  CHECK(ring.empty());
}

TEST_CASE("Pages of other sites cannot begin a trace, nor make the server work without a key") {
  live_server live;
  raw_client client(live.port());
  for (const auto* path : {"/debug/trace?seconds=30", "/v1/models", "/debug/figures"})
    for (const auto* site : {"cross-site", "same-site"}) {
      client.send("GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: " + site + "\r\n\r\n");
      CHECK(client.read_response().status == 403);
    }
  client.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n\r\n");
  CHECK(client.read_response().status == 200);
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n");
  CHECK(client.read_response().status == 200);
}

TEST_CASE("GET /debug/trace traces the next seconds") {
  live_server live;
  raw_client client(live.port());
  live.fake.first_step = record_of(5);
  client.get("/debug/trace?seconds=1");
  const auto answer = client.read_response();
  CHECK(answer.status == 200);
  CHECK(answer.body.find(R"("name":"step 5")") != answer.body.npos);
  CHECK(becomes(live.fake, 0));
  for (const auto* query :
       {"?seconds=0", "?seconds=31", "?seconds=x", "?seconds=", "?second=1", "?seconds=1000", "?seconds=-1"}) {
    client.get("/debug/trace" + std::string(query));
    CHECK(client.read_response().status == 400);
  }
  // A client that leaves ends its trace.
  raw_client leaver(live.port());
  leaver.get("/debug/trace?seconds=30");
  CHECK(becomes(live.fake, 1));
  leaver.close();
  CHECK(becomes(live.fake, 0));
}
