// Clients that lose their connection and come back for the rest of a stream.
#include "api/http/byte_budget.hpp"
#include "api/server/resume/stream_journal.hpp"
#include "api/server/resume/stream_table.hpp"
#include "tests/api/server/websocket_client.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>

using namespace troupe;
using namespace troupe::test;

namespace {

server_options with_window(std::chrono::milliseconds window = std::chrono::hours(1)) {
  server_options options;
  options.resume_window = window;
  return options;
}

stream_journal small_journal(byte_budget& memory, stream_journal::bounds most = {.ahead = 200, .kept = 400}) {
  return stream_journal({"r", "a", 0, "me"}, most, memory, [] {});
}

response back(const live_server& live, const std::string& path, std::string_view headers = {}) {
  return get(live.port(), path, headers);
}

} // namespace

TEST_CASE("A journal numbers events, and tells a reader those behind its last") {
  byte_budget memory(1 << 20);
  auto journal = small_journal(memory);
  journal.append("data: a\n\ndata: b\n\n");
  journal.append("event: x\ndata: c\n\n");
  auto reader = journal.attach(0, [] {});
  CHECK(journal.read(reader, 1000).text == "id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\nevent: x\ndata: c\n\n");
  reader = journal.attach(2, [] {});
  CHECK(journal.read(reader, 1000).text == "id: 3\nevent: x\ndata: c\n\n");
  CHECK_FALSE(journal.read(reader, 1000).ended);
  journal.end();
  CHECK(journal.read(reader, 1000).ended);
  CHECK_THROWS_AS(journal.attach(4, [] {}), failure);
}

TEST_CASE("A newer reader of a journal replaces the older one, whose leave changes nothing then") {
  byte_budget memory(1 << 20);
  auto journal = small_journal(memory);
  int woken = 0;
  const auto old = journal.attach(0, [&] { ++woken; });
  const auto now = journal.attach(0, [] {});
  CHECK(woken == 1);
  CHECK(journal.read(old, 100).replaced);
  journal.leave(old);
  CHECK_FALSE(journal.unread_since());
  journal.leave(now);
  CHECK(journal.unread_since());
}

TEST_CASE("A journal is bounded: a reader that is there loses what is oldest, one that is away loses nothing") {
  byte_budget memory(1 << 20);
  auto journal = small_journal(memory);
  const std::string event = "data: " + std::string(60, 'x') + "\n\n";
  const auto reader = journal.attach(0, [] {});
  for (int i = 0; i < 20; ++i) {
    CHECK(journal.has_room());
    journal.append(event);
    journal.read(reader, 1000);
  }
  CHECK(memory.taken() <= 400);
  CHECK_THROWS_AS(journal.attach(1, [] {}), failure);
  journal.leave(reader);
  int made = 0;
  for (; journal.has_room(); ++made)
    journal.append(event);
  CHECK(made >= 1);
  CHECK(memory.taken() <= 400 + 200);
  const auto again = journal.attach(20, [] {}); // it had all that was sent
  const auto text = journal.read(again, 10'000).text;
  CHECK(text.starts_with("id: 21\n"));
  CHECK(text.find("id: " + std::to_string(20 + made) + "\n") != text.npos);
  CHECK(journal.has_room());
}

TEST_CASE("Where others hold the memory, a stream without its client waits, and one with it goes on") {
  byte_budget memory(300, 300);
  byte_budget::share others(memory, "others");
  REQUIRE(others.grow_to(300));
  auto journal = small_journal(memory);
  const auto reader = journal.attach(0, [] {});
  journal.append("data: a\n\n");
  CHECK(journal.has_room());
  journal.leave(reader);
  CHECK_FALSE(journal.has_room());
  CHECK(journal.lacks_memory());
  others.shrink_to(0);
  CHECK(journal.has_room());
}

TEST_CASE("Streams that nobody reads are bounded in number, and those that have ended go first") {
  stream_table table(1 << 20, 2);
  const auto make = [&](const char* id, const char* client) {
    auto one = std::make_shared<stream_journal>(stream_journal::origin{id, {}, 0, client}, stream_journal::bounds{},
                                                table.memory, [] {});
    table.open(one);
    return one;
  };
  const auto first = make("a", "me");
  CHECK(table.keep(first));
  const auto second = make("b", "me"); // one client has half
  CHECK_FALSE(table.keep(second));
  first->end();
  const auto reader = first->attach(0, [] {});
  CHECK_FALSE(table.drop_ended("me")); // it is still being sent
  first->leave(reader);
  CHECK(table.keep(second));
  CHECK(first->is_dropped());
  CHECK(table.keep(make("c", "other")));
  CHECK_FALSE(table.keep(make("d", "another")));
  CHECK_THROWS_AS(table.find(0, "other", "b"), failure);
  CHECK_THROWS_AS(table.find(1, "me", "b"), failure);
  CHECK(table.find(0, "me", "b") == second);
}

TEST_CASE("A stream goes on without its client, who comes back for what it has missed and the rest") {
  live_server live(with_window());
  for (const auto* path : {"/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"}) {
    CAPTURE(path);
    const std::string about = path;
    const std::string body = about.ends_with("/completions") && about.find("chat") == about.npos ? R"("prompt":"a")"
      : about.ends_with("responses")                                                             ? R"("input":"a")"
                                     : R"("max_tokens":9,"messages":[{"role":"user","content":"a"}])";
    raw_client client(live.port());
    client.post(path, "{\"stream\":true," + body + "}", "X-Request-Id: mine\r\n");
    const auto request = live.fake.next();
    request->text("one");
    const auto head = client.read_head();
    CHECK(head.status == 200);
    CHECK(head.headers.at("x-request-id") == "mine");
    auto seen = client.read_until("one");
    seen += client.read_until("\n\n");
    const auto at = seen.rfind("id: ", seen.rfind("one"));
    const auto last = seen.substr(at + 4, seen.find('\n', at) - at - 4);
    client.close();
    request->text("two");
    request->finish();
    request->done();
    CHECK_FALSE(request->cancelled());
    const auto rest = back(live, "/v1/requests/mine/events", "Last-Event-ID: " + last + "\r\n");
    CHECK(rest.status == 200);
    CHECK(rest.headers.at("content-type") == "text/event-stream");
    CHECK(rest.body.starts_with("id: " + std::to_string(std::stoi(last) + 1) + "\n"));
    CHECK(rest.body.find("two") != rest.body.npos);
    const auto all = back(live, "/v1/requests/mine/events");
    CHECK(all.body.starts_with("id: 1\n"));
    CHECK(all.body.ends_with(rest.body));
  }
}

TEST_CASE("A response's stream is continued behind a sequence number, as OpenAI does") {
  live_server live(with_window());
  raw_client client(live.port());
  client.post("/v1/responses", R"({"input":"a","stream":true})");
  const auto request = live.fake.next();
  request->text("one");
  auto seen = client.read_until("\"delta\":\"one\"");
  const auto id = seen.substr(seen.find("resp_"), 53);
  client.close();
  request->text("two");
  const auto half = get(live.port(), "/v1/responses/" + id); // it is not stored yet
  CHECK(half.status == 404);
  raw_client again(live.port());
  again.get("/v1/responses/" + id + "?stream=true&starting_after=4");
  CHECK(again.read_until("\n\n").find("\"sequence_number\":5,") != std::string::npos);
  request->finish();
  request->done();
  CHECK(again.read_until("response.completed").find("two") != std::string::npos);
}

TEST_CASE("Who comes back while the old connection seems alive takes its place") {
  live_server live(with_window());
  raw_client old(live.port());
  old.post("/v1/completions", R"({"prompt":"a","stream":true})", "X-Request-Id: mine\r\n");
  const auto request = live.fake.next();
  request->text("one");
  old.read_until("one");
  raw_client now(live.port());
  now.get("/v1/requests/mine/events");
  now.read_until("one");
  CHECK(old.read_all().find("[DONE]") == std::string::npos); // it ends, and not as if it were whole
  request->text("two");
  request->finish();
  request->done();
  now.read_until("two");
  now.read_until("[DONE]");
}

TEST_CASE("Behind the window the request of a lost client is cancelled") {
  live_server live(with_window(std::chrono::milliseconds(50)));
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a","stream":true})", "X-Request-Id: mine\r\n");
  const auto request = live.fake.next();
  request->text("one");
  client.read_until("one");
  client.close();
  CHECK(request->wait_cancelled());
}

TEST_CASE("Another client cannot take a stream, and a wrong position is told") {
  auto options = with_window();
  options.api_keys = {"key-a", "key-b"};
  live_server live(options);
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a","stream":true})",
              "Authorization: Bearer key-a\r\nX-Request-Id: mine\r\n");
  const auto request = live.fake.next();
  request->text("one");
  client.read_until("one");
  const std::string path = "/v1/requests/mine/events", mine = "Authorization: Bearer key-a\r\n";
  CHECK(back(live, path, "Authorization: Bearer key-b\r\n").status == 404);
  CHECK(back(live, path).status == 401);
  CHECK(back(live, path, mine + "Last-Event-ID: x\r\n").status == 400);
  CHECK(back(live, path, mine + "Last-Event-ID: 99\r\n").status == 400);
  CHECK(back(live, "/v1/requests/none/events", mine).status == 404);
  live_server without;
  CHECK(back(without, path).body.find("--resume-window") != std::string::npos);
}

TEST_CASE("What is refused before any event is refused with its status, and cancelled streams are told why") {
  live_server live(with_window());
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a","stream":true})", "X-Request-Id: mine\r\n");
  live.fake.next()->send(error{errc::overloaded, "too much", {}});
  CHECK(client.read_response().status == 429);
  client.post("/v1/completions", R"({"prompt":"a","stream":true})", "X-Request-Id: other\r\n");
  const auto request = live.fake.next();
  request->text("one");
  client.read_until("one");
  client.close();
  raw_client owner(live.port());
  owner.request("DELETE", "/v1/requests/other", {}, {});
  CHECK(owner.read_response().status == 200);
  CHECK(request->wait_cancelled());
  CHECK(back(live, "/v1/requests/other/events").body.find("cancelled") != std::string::npos);
}

TEST_CASE("A server that stops waits for streams that are read, and not for lost clients") {
  live_server live(with_window());
  raw_client lost(live.port()), there(live.port());
  lost.post("/v1/completions", R"({"prompt":"a","stream":true})");
  const auto first = live.fake.next();
  first->text("one");
  lost.read_until("one");
  there.post("/v1/completions", R"({"prompt":"b","stream":true})");
  const auto second = live.fake.next();
  second->text("one");
  there.read_until("one");
  lost.close();
  live.begin_stop();
  CHECK(first->wait_cancelled());
  CHECK_FALSE(second->cancelled());
  second->text("two");
  second->finish();
  second->done();
  there.read_until("two");
  there.read_until("[DONE]");
  live.stop();
}

// -- WebSockets ----------------------------------------------------------------------------------------------------------

namespace {

std::string session_of(const std::string& frame) {
  const auto at = frame.find("ws_");
  REQUIRE(frame.starts_with(R"({"type":"session")"));
  return frame.substr(at, frame.find('"', at) - at);
}

} // namespace

TEST_CASE("A WebSocket's client that was lost goes on by another connection, at its position") {
  live_server live(with_window());
  std::optional<ws_client> first(std::in_place, live.port());
  const auto session = session_of(first->hear());
  first->say(R"({"type":"generate","id":"r","prompt":"a"})");
  const auto request = live.fake.next();
  request->text("one");
  CHECK(first->hear().starts_with(R"({"seq":1,"type":"token","id":"r")"));
  request->text("two");
  CHECK(first->hear().find("two") != std::string::npos);
  first.reset(); // without a close frame
  request->text("three");
  ws_client second(live.port(), {}, 0, "?resume=" + session + "&after=1");
  CHECK(second.upgrade.status == 101);
  CHECK(session_of(second.hear()) == session);
  CHECK(second.hear().find(R"("text":"two")") != std::string::npos);
  const auto third = second.hear();
  CHECK(third.starts_with(R"({"seq":3,)"));
  CHECK(third.find("three") != std::string::npos);
  CHECK_FALSE(request->cancelled());
  second.say(R"({"type":"generate","id":"s","prompt":"b"})"); // it is a connection like any other
  const auto next = live.fake.next();
  next->text("four");
  CHECK(second.hear().find("four") != std::string::npos);
  request->finish();
  request->done();
  CHECK(second.hear().starts_with(R"({"seq":5,"type":"done","id":"r")"));
}

TEST_CASE("A WebSocket that its client closes is not kept, nor found by others, and a wrong position is refused") {
  auto options = with_window();
  options.api_keys = {"key-a", "key-b"};
  live_server live(options);
  const std::string mine = "Authorization: Bearer key-a\r\n", other = "Authorization: Bearer key-b\r\n";
  ws_client first(live.port(), mine);
  const auto session = session_of(first.hear());
  first.say(R"({"type":"generate","id":"r","prompt":"a"})");
  const auto request = live.fake.next();
  CHECK(ws_client(live.port(), other, 0, "?resume=" + session).upgrade.status == 404);
  CHECK(ws_client(live.port(), mine, 0, "?resume=" + session + "&after=5").upgrade.status == 400);
  CHECK(ws_client(live.port(), mine, 0, "?resume=" + session + "&after=x").upgrade.status == 400);
  CHECK(ws_client(live.port(), mine, 0, "?resume=none").upgrade.status == 404);
  first.send_frame(8, std::string("\x03\xe8", 2));
  CHECK(request->wait_cancelled());
}

TEST_CASE("Behind the window a lost WebSocket's requests are cancelled") {
  live_server live(with_window(std::chrono::milliseconds(50)));
  std::optional<ws_client> client(std::in_place, live.port());
  client->hear();
  client->say(R"({"type":"generate","id":"r","prompt":"a"})");
  const auto request = live.fake.next();
  client.reset();
  CHECK(request->wait_cancelled());
}
