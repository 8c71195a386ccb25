// Requests as their owners see them from elsewhere, by their ids.
#include "runtime/support/json/json.hpp"
#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>

using namespace troupe;
using namespace troupe::test;

namespace {

std::string text_of(const response& of, std::string_view member) {
  const auto parsed = json::document::parse(of.body, "the answer");
  const auto found = json::find(parsed.root(), member);
  return found && found->is_string() ? std::string(std::string_view(*found)) : std::string();
}

double number_of(const response& of, std::string_view member) {
  const auto parsed = json::document::parse(of.body, "the answer");
  const auto found = json::find(parsed.root(), member);
  return found && found->is_number() ? double(*found) : -1;
}

double part_of(const response& of, std::string_view cause) {
  const auto parsed = json::document::parse(of.body, "the answer");
  const auto found = json::find(json::find(parsed.root(), "spent_ms").value(), cause);
  return found ? double(*found) : 0;
}

double sum_of_parts(const response& of) {
  double sum = 0;
  for (std::size_t i = 0; i < wait_causes; ++i)
    sum += part_of(of, name_of(static_cast<wait_cause>(i)));
  return sum;
}

response ask(const live_server& live, std::string_view method, const std::string& path, std::string_view body = {},
             std::string_view headers = {}) {
  raw_client client(live.port());
  client.request(method, path, body,
                 (method == "POST" ? "Content-Type: application/json\r\n" : "") + std::string(headers));
  return client.read_response();
}

server_options with_keys() {
  server_options options;
  options.api_keys = {"key-a", "key-b"};
  return options;
}

} // namespace

TEST_CASE("A request is told by its id and by that of its answer, while it runs and behind its end") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"abc","stream":true})", "X-Request-Id: r-1\r\n");
  const auto request = live.fake.next();
  request->ledger->enter({wait_cause::decode}, std::chrono::steady_clock::now());
  request->text("xy");
  const auto begun = client.read_until("\"xy\"");
  const auto at = begun.find("\"id\":\"cmpl-") + 6;
  const auto answer_id = begun.substr(at, begun.find('"', at) - at);

  const auto running = ask(live, "GET", "/v1/requests/r-1");
  CHECK(running.status == 200);
  CHECK(text_of(running, "state") == "decode");
  CHECK(text_of(running, "route") == "POST /v1/completions");
  CHECK(text_of(running, "answer_id") == answer_id);
  CHECK(text_of(running, "model") == "org/bytes");
  CHECK(number_of(running, "prompt_tokens") == 4);
  CHECK(number_of(running, "completion_tokens") == 2);
  CHECK(running.body.find("\"status\"") == std::string::npos);
  CHECK(ask(live, "GET", "/v1/requests/" + answer_id).status == 200);

  request->finish();
  request->done();
  client.read_until("[DONE]");
  client.close();
  auto ended = ask(live, "GET", "/v1/requests/r-1");
  for (const auto end = std::chrono::steady_clock::now() + patience;
       text_of(ended, "state") != "ended" && std::chrono::steady_clock::now() < end;)
    ended = ask(live, "GET", "/v1/requests/r-1");
  CHECK(number_of(ended, "status") == 200);
  CHECK(sum_of_parts(ended) == doctest::Approx(number_of(ended, "total_ms")));
}

TEST_CASE("The time of requests that fail, are cancelled or lose their clients is told by cause, too") {
  live_server live;
  raw_client failing(live.port()), torn(live.port()), cancelled(live.port()), leaving(live.port());
  const std::string stream = R"({"prompt":"a","stream":true})";
  failing.post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: failing\r\n");
  const auto first = live.fake.next();
  torn.post("/v1/completions", stream, "X-Request-Id: torn\r\n");
  const auto second = live.fake.next();
  cancelled.post("/v1/completions", stream, "X-Request-Id: cancelled\r\n");
  const auto third = live.fake.next();
  leaving.post("/v1/completions", stream, "X-Request-Id: leaving\r\n");
  const auto fourth = live.fake.next();
  for (const auto& one : {first, second, third, fourth})
    one->ledger->enter({wait_cause::preempted}, std::chrono::steady_clock::now());
  second->text("xy");
  torn.read_until("xy");
  first->send(error{errc::device, "the device is lost", {}});
  second->send(error{errc::device, "the device is lost", {}});
  CHECK(ask(live, "DELETE", "/v1/requests/cancelled").status == 200);
  leaving.close();
  CHECK(fourth->wait_cancelled());
  fourth->done(finish_reason::cancelled);
  for (const auto& [id, status, code] : {std::tuple("failing", 500, "device_error"),
                                         {"torn", 200, "device_error"},
                                         {"cancelled", 499, "cancelled"},
                                         {"leaving", 499, ""}}) {
    CAPTURE(id);
    const auto path = "/v1/requests/" + std::string(id);
    auto ended = ask(live, "GET", path);
    for (const auto end = std::chrono::steady_clock::now() + patience;
         text_of(ended, "state") != "ended" && std::chrono::steady_clock::now() < end;)
      ended = ask(live, "GET", path);
    CHECK(number_of(ended, "status") == status);
    CHECK(text_of(ended, "error") == code);
    CHECK(part_of(ended, "preempted") > 0);
    CHECK(sum_of_parts(ended) == doctest::Approx(number_of(ended, "total_ms")));
  }
  for (const auto* line :
       {R"(_count{cause="preempted",outcome="failed"} 2)", R"(_count{cause="preempted",outcome="cancelled"} 2)"}) {
    const auto is_told = [&] {
      return ask(live, "GET", "/metrics").body.find("troupe_request_spent_seconds" + std::string(line)) !=
        std::string::npos;
    };
    for (const auto end = std::chrono::steady_clock::now() + patience;
         !is_told() && std::chrono::steady_clock::now() < end;) // they are counted a moment behind their ends
      std::this_thread::yield();
    CHECK(is_told());
  }
}

TEST_CASE("A control says what it takes, and long ids are not repeated") {
  live_server live;
  const std::string path = "/v1/requests/none/control", long_id(5000, 'b');
  CHECK(ask(live, "POST", path, R"({"action":"end","when":1})").body.find("`when` is not a field of this endpoint") !=
        std::string::npos);
  CHECK(ask(live, "GET", "/v1/requests/" + long_id).body.size() < 300);
}

TEST_CASE("An id that nobody has is a 404 in one sentence, and so is another's") {
  live_server live(with_keys());
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a"})", "Authorization: Bearer key-a\r\nX-Request-Id: mine\r\n");
  const auto request = live.fake.next();
  const std::string a = "Authorization: Bearer key-a\r\n", b = "Authorization: Bearer key-b\r\n";
  CHECK(ask(live, "GET", "/v1/requests/mine", {}, a).status == 200);
  for (const auto& [method, path, key] : {std::tuple("GET", "/v1/requests/mine", b),
                                          {"DELETE", "/v1/requests/mine", b},
                                          {"GET", "/v1/requests/other", a},
                                          {"DELETE", "/v1/requests/other", a}}) {
    const auto refused = ask(live, method, path, {}, key);
    CHECK(refused.status == 404);
    CHECK(refused.body.find("there is no request `") != std::string::npos);
  }
  CHECK(ask(live, "POST", "/v1/requests/mine/control", R"({"action":"end"})", b).status == 404);
  CHECK(ask(live, "GET", "/v1/requests/mine").status == 401);
  CHECK_FALSE(request->cancelled());
  request->done();
  CHECK(client.read_response().status == 200);
}

TEST_CASE("A request that its owner cancels ends with an error that clients do not try again") {
  live_server live;
  raw_client whole(live.port()), stream(live.port());
  whole.post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: w\r\n");
  const auto first = live.fake.next();
  stream.post("/v1/completions", R"({"prompt":"b","stream":true})", "X-Request-Id: s\r\n");
  const auto second = live.fake.next();
  second->text("xy");
  stream.read_until("\"xy\"");
  for (const auto* path : {"/v1/requests/w", "/v1/requests/s"}) {
    const auto answer = ask(live, "DELETE", path);
    CHECK(answer.status == 200);
    CHECK(answer.body.find("\"cancelled\":true") != std::string::npos);
  }
  CHECK(first->wait_cancelled());
  CHECK(second->wait_cancelled());
  const auto refused = whole.read_response();
  CHECK(refused.status == 499);
  CHECK_FALSE(refused.headers.contains("retry-after"));
  CHECK(refused.body.find("cancelled by its owner") != std::string::npos);
  const auto rest = stream.read_until("[DONE]");
  CHECK(rest.find("cancelled by its owner") != std::string::npos);
}

TEST_CASE("Of requests that share an id, all are cancelled, and one that comes later is not") {
  live_server live;
  raw_client one(live.port()), two(live.port()), later(live.port());
  one.post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: same\r\n");
  const auto first = live.fake.next();
  two.post("/v1/completions", R"({"prompt":"b"})", "X-Request-Id: same\r\n");
  const auto second = live.fake.next();
  CHECK(ask(live, "DELETE", "/v1/requests/same").status == 200);
  later.post("/v1/completions", R"({"prompt":"c"})", "X-Request-Id: same\r\n");
  const auto third = live.fake.next();
  CHECK(first->wait_cancelled());
  CHECK(second->wait_cancelled());
  CHECK(one.read_response().status == 499);
  CHECK(two.read_response().status == 499);
  CHECK_FALSE(third->cancelled());
  third->done();
  CHECK(later.read_response().status == 200);
}

TEST_CASE("An answer is ended from elsewhere, where there is one to end") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: r\r\n");
  const auto request = live.fake.next();
  const auto control = [&](std::string_view body, const std::string& id = "r") {
    return ask(live, "POST", "/v1/requests/" + id + "/control", body);
  };
  CHECK(control("{}").body.find("`action` is required") != std::string::npos);
  CHECK(control(R"({"action":"go"})").status == 400);
  CHECK(control("nothing").status == 400);
  auto answer = control(R"({"action":"end"})");
  for (const auto end = std::chrono::steady_clock::now() + patience;
       answer.status == 400 && std::chrono::steady_clock::now() < end;) // its connection has not noted it yet
    answer = control(R"({"action":"end"})");
  CHECK(answer.status == 200);
  CHECK(request->wait_finished());
  request->done();
  CHECK(client.read_response().status == 200);

  client.post("/v1/embeddings", R"({"input":"a"})", "X-Request-Id: e\r\n");
  const auto embedding = live.fake.next();
  CHECK(control(R"({"action":"end"})", "e").status == 400);
  CHECK_FALSE(embedding->cancelled());
  CHECK(ask(live, "DELETE", "/v1/requests/e").status == 200);
  CHECK(client.read_response().status == 499);
}

TEST_CASE("A refusal for a long wait says how long, and when to try again") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a"})");
  live.fake.next()->send(error{errc::overloaded, "it would wait", {}, 12'345, 7'345});
  const auto refused = client.read_response();
  CHECK(refused.status == 429);
  CHECK(refused.headers.at("retry-after") == "8");
  CHECK(refused.body.find("\"predicted_wait_ms\":12345") != std::string::npos);
}
