// Faults on purpose over HTTP: only where the server's operator wants them.
#include "runtime/support/fault_injection.hpp"
#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

server_options with_faults() {
  server_options options;
  options.fault_injection = true;
  return options;
}

response ask_for_faults(std::uint16_t port, std::string_view body) {
  raw_client client(port);
  client.post("/debug/faults", body);
  return client.read_response();
}

struct no_faults_after {
  ~no_faults_after() { fault_injection::set({}); }
};

} // namespace

TEST_CASE("a server injects no faults unless it was started for that") {
  live_server live;
  CHECK(get(live.port(), "/debug/faults").status == 404);
  const auto refused = ask_for_faults(live.port(), R"({"faults":[{"kind":"disk","every_ms":1}]})");
  CHECK(refused.status == 404);
  CHECK(refused.body.find("--fault-injection") != std::string::npos);
  CHECK_FALSE(fault_injection::armed());
}

TEST_CASE("faults are set as a list, and told with how often they struck when they are replaced") {
  const no_faults_after ends;
  live_server live(with_faults());
  const auto set = [&](const std::string& body) { return ask_for_faults(live.port(), body); };
  CHECK(set(R"({"faults":[{"kind":"disk","every_messages":1,"count":2}]})").body == R"({"faults":[]})");
  CHECK(fault_injection::refuses("disk"));
  CHECK(get(live.port(), "/debug/faults").body == R"({"faults":[{"kind":"disk","count":2,"struck":1}]})");
  CHECK(set(R"({"faults":[]})").body == R"({"faults":[{"kind":"disk","count":2,"struck":1}]})");
  CHECK_FALSE(fault_injection::armed());
}

TEST_CASE("a broken connection on purpose ends in the middle of an answer") {
  const no_faults_after ends;
  live_server live(with_faults());
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a","stream":true})");
  const auto request = live.fake.next();
  request->text("one");
  client.read_head();
  fault_injection::set({{.kind = "socket", .what = fault_rule::effect::refusal, .every_passages = 1}});
  request->text("two");
  CHECK(request->wait_cancelled());
}

TEST_CASE("a fault that cannot be is refused with the field that is wrong") {
  const no_faults_after ends;
  live_server live(with_faults());
  const auto refused = [&](const std::string& fault, const std::string& says) {
    const auto answer = ask_for_faults(live.port(), R"({"faults":[)" + fault + "]}");
    CAPTURE(answer.body);
    CHECK(answer.status == 400);
    CHECK(answer.body.find(says) != std::string::npos);
  };
  refused(R"({"kind":"sampler","every_ms":1})", "must be one of those that are there: disk, socket");
  refused(R"({"kind":"disk"})", "`faults[0].every_ms` or `every_messages` must be given");
  refused(R"({"kind":"disk","every_ms":1,"every_messages":1})", "and not both");
  refused(R"({"kind":"disk","every_ms":1,"what":"kill"})", "must be left out");
  refused(R"({"kind":"disk","every_ms":1,"pause_ms":1})", "for a delay");
  refused(R"({"kind":"disk","every_ms":1,"period":1})", "period");
  refused(R"(1)", "faults[0]");
  CHECK(ask_for_faults(live.port(), "{}").status == 400);
  CHECK_FALSE(fault_injection::armed());
}
