#include "api/http/log.hpp"
#include "api/server/figures/request_record.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/api/server/websocket_client.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A server whose log is read after it has stopped.
class logged_server {
public:
  explicit logged_server(log_level level = log_level::info, log_format format = log_format::json,
                         server_options options = {})
    : live(with_log(std::move(options), server_log::on_stream(out_, level, format))) {}

  std::vector<std::string> lines() {
    live.stop();
    std::vector<std::string> result;
    std::istringstream in(out_.str());
    for (std::string line; std::getline(in, line);)
      result.push_back(line);
    return result;
  }

private:
  static server_options with_log(server_options options, std::shared_ptr<server_log> log) {
    options.log = std::move(log);
    return options;
  }
  std::ostringstream out_;

public:
  live_server live;
};

/// The expected fields of a line, as JSON text; "?" stands for any number.
std::string missing(const std::string& line, const std::map<std::string, std::string>& wanted) {
  const auto parsed = json::document::parse(line, "the line");
  for (const auto& [name, value] : wanted) {
    const auto found = json::find(parsed.root(), name);
    if (!found)
      return name + " is missing in " + line;
    if (value == "?" ? !found->is_number() : simdjson::minify(*found) != value)
      return name + " is not " + value + " in " + line;
  }
  return {};
}

} // namespace

TEST_CASE("A rate limit passes bursts and then a steady rate, and counts what it holds back") {
  rate_limit limit(2, 3);
  const rate_limit::clock::time_point start{std::chrono::hours(1)};
  for (int i = 0; i < 3; ++i)
    CHECK(limit.pass(start) == 0);
  for (int i = 0; i < 5; ++i)
    CHECK_FALSE(limit.pass(start));
  CHECK(limit.pass(start + std::chrono::milliseconds(500)) == 5);
  CHECK_FALSE(limit.pass(start + std::chrono::milliseconds(500)));
  CHECK(limit.pass(start + std::chrono::hours(1)) == 1);
}

TEST_CASE("Input from clients cannot end a line, control a terminal or be long") {
  CHECK(log_text("plain") == "\"plain\"");
  CHECK(log_text("a\nb\r\x1b[31m\x7f\"") == R"("a\nb\r\u001b[31m\u007f\"")");
  CHECK(log_text("\xc2\x9b"
                 "1m \xe2\x80\xa8 \xc3\xa4") == "\"\\u009b1m \\u2028 \xc3\xa4\"");
  CHECK(log_text("\xff") == "\"\xef\xbf\xbd\"");
  CHECK(log_text(std::string(1000, 'x')).size() == 205);
}

TEST_CASE("A client's request id is used if it is short and harmless") {
  CHECK(accepted_request_id("3f2c-1.a_b:c") == "3f2c-1.a_b:c");
  CHECK(accepted_request_id(std::string(64, 'a')).size() == 64);
  for (const auto& bad : {std::string(65, 'a'), std::string("a b"), std::string("a\x1b"), std::string("\xc3\xa4")})
    CHECK(accepted_request_id(bad).empty());
}

TEST_CASE("Each request has a line with its id, counts and times, and never its text") {
  logged_server logged;
  auto& live = logged.live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"secret","max_tokens":5})", "X-Request-Id: mine-1\r\n");
  auto request = live.fake.next();
  request->text("hidden");
  request->finish();
  request->done();
  CHECK(client.read_response().headers.at("x-request-id") == "mine-1");

  client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"secret"}],"stream":true,"n":2})");
  request = live.fake.next();
  for (const std::uint32_t index : {0u, 1u}) {
    request->text("hidden", index);
    request->finish(finish_reason::length, index);
  }
  request->done(finish_reason::length);
  const auto streamed = client.read_response();
  CHECK(streamed.headers.at("x-request-id").size() > 8);
  client.get("/v1/models?secret=1", "X-Request-Id: not one\r\n");
  client.read_response();
  client.get("/health"); // a probe
  client.read_response();

  const auto lines = logged.lines();
  REQUIRE(lines.size() == 3);
  CHECK(missing(lines[0],
                {{"level", "\"info\""},
                 {"event", "\"request\""},
                 {"id", "\"mine-1\""},
                 {"route", "\"POST /v1/completions\""},
                 {"status", "200"},
                 {"prompt_tokens", "7"},
                 {"completion_tokens", "6"},
                 {"cached_tokens", "1"},
                 {"queue_ms", "0.5"},
                 {"first_token_ms", "?"},
                 {"between_tokens_ms", "?"},
                 {"total_ms", "?"},
                 {"finish", "\"stop\""}}) == "");
  CHECK(missing(lines[1],
                {{"id", '"' + streamed.headers.at("x-request-id") + '"'},
                 {"route", "\"POST /v1/chat/completions\""},
                 {"status", "200"},
                 {"completion_tokens", "12"},
                 {"finish", "\"length\""}}) == "");
  CHECK(missing(lines[2], {{"route", "\"GET /v1/models\""}, {"status", "200"}}) == "");
  const std::string_view time = std::string_view(lines[0]).substr(9, 29);
  CHECK(time.substr(4, 1) == "-");
  CHECK(time.substr(10, 1) == "T");
  for (const auto& line : lines)
    for (const auto* secret : {"secret", "hidden", "not one"})
      CHECK(line.find(secret) == line.npos);
}

TEST_CASE("Refusals are logged as warnings with their kind") {
  server_options options;
  options.api_keys = {"sesame"};
  logged_server logged(log_level::warn, log_format::json, options);
  auto& live = logged.live;
  raw_client client(live.port());
  client.get("/v1/models", "Authorization: Bearer guess\r\n");
  client.read_response();
  client.post("/v1/completions", R"({"prompt":"a","temperature":"hot"})", "Authorization: Bearer sesame\r\n");
  client.read_response();
  client.post("/v1/completions", R"({"prompt":"a"})", "Authorization: Bearer sesame\r\n");
  live.fake.next()->send(error{errc::overloaded, "full", {}});
  client.read_response();
  client.get("/\x1b[31m%0a", "Authorization: Bearer sesame\r\n");
  client.read_response();

  const auto lines = logged.lines();
  REQUIRE(lines.size() == 4);
  CHECK(missing(lines[0], {{"level", "\"warn\""}, {"status", "401"}, {"error", "\"invalid_api_key\""}}) == "");
  CHECK(missing(lines[1], {{"status", "400"}, {"error", "\"invalid_value\""}, {"field", "\"temperature\""}}) == "");
  CHECK(missing(lines[2], {{"status", "429"}, {"error", "\"rate_limit_exceeded\""}, {"finish", "\"error\""}}) == "");
  for (const auto& line : lines) {
    CHECK(line.find("guess") == line.npos);
    CHECK(line.find("sesame") == line.npos);
    CHECK(line.find('\x1b') == line.npos);
  }
}

TEST_CASE("A request's line says who asked, and a refusal's why") {
  const test::temp_folder folder;
  std::ofstream(folder.path() / "keys") << "alice=key-a1\nbob = key-b1\n";
  server_options options;
  options.key_file = folder.path() / "keys";
  options.max_requests_per_key = 2;
  logged_server logged(log_level::info, log_format::json, options);
  auto& live = logged.live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a","user":"u-17"})",
              "Authorization: Bearer key-a1\r\nX-Forwarded-For: 10.1.2.3, 10.0.0.1\r\n");
  auto request = live.fake.next();
  request->text("xyz");
  request->done();
  client.read_response();
  client.post("/v1/completions", R"({"prompt":"a","n":3,"user":5,"safety_identifier":"s-1"})",
              "Authorization: Bearer key-b1\r\n");
  client.read_response();
  client.get("/v1/models", "Authorization: Bearer key-b2\r\n");
  client.read_response();
  {
    ws_client socket(live.port(), "Authorization: Bearer key-b1\r\n");
    socket.say(R"({"type":"generate","id":"c","prompt":"x","user":"u-18"})");
    request = live.fake.next();
    request->done();
    socket.hear();
  }
  client.get("/metrics", "Authorization: Bearer key-a1\r\n");
  const auto metrics = client.read_response().body;
  for (const auto* line :
       {"troupe_key_requests_total{key=\"alice\",status=\"200\"} 1\n",
        "troupe_key_requests_total{key=\"bob\",status=\"400\"} 1\n",
        "troupe_key_generated_tokens_total{key=\"alice\"} 3\n", "troupe_key_prompt_tokens_total{key=\"alice\"} 2\n"})
    CHECK_MESSAGE(metrics.find(line) != std::string::npos, line);

  const auto lines = logged.lines();
  REQUIRE(lines.size() == 5);
  CHECK(missing(lines[0],
                {{"client", "\"127.0.0.1\""},
                 {"forwarded_for", "\"10.1.2.3, 10.0.0.1\""},
                 {"key", "\"alice\""},
                 {"user", "\"u-17\""},
                 {"status", "200"}}) == "");
  CHECK(missing(lines[1],
                {{"key", "\"bob\""},
                 {"user", "\"s-1\""},
                 {"status", "400"},
                 {"why", "\"one API key may have at most 2 sequences at once, and this request asks for 3\""}}) == "");
  CHECK(missing(lines[2], {{"client", "\"127.0.0.1\""}, {"status", "401"}}) == "");
  CHECK(lines[2].find("\"key\"") == std::string::npos);
  CHECK(missing(lines[4], {{"frame", "\"c\""}, {"key", "\"bob\""}, {"user", "\"u-18\""}}) == "");
  for (const auto& line : lines)
    for (const auto* secret : {"key-a1", "key-b1", "key-b2"})
      CHECK(line.find(secret) == line.npos);
}

TEST_CASE("A request that is cancelled in the queue has waited there") {
  logged_server logged;
  auto& live = logged.live;
  const auto end = [](fake_request& request) {
    done_event done;
    done.choices.push_back({0, finish_reason::cancelled, 0});
    done.queue_ms = 1234.5;
    request.send(std::move(done));
  };
  {
    raw_client client(live.port());
    client.post("/v1/completions", R"({"prompt":"a"})");
    const auto request = live.fake.next();
    client.close();
    CHECK(request->wait_cancelled());
    end(*request);
  }
  {
    ws_client socket(live.port());
    socket.say(R"({"type":"generate","id":"c","prompt":"x"})");
    const auto request = live.fake.next();
    socket.close();
    CHECK(request->wait_cancelled());
    end(*request);
  }
  { // of one that the engine has not answered for, nothing is claimed
    raw_client client(live.port());
    client.post("/v1/completions", R"({"prompt":"a"})");
    const auto request = live.fake.next();
    client.close();
    CHECK(request->wait_cancelled());
  }
  const auto lines = logged.lines();
  REQUIRE(lines.size() == 4);
  for (const auto i : {0, 2})
    CHECK(missing(lines[static_cast<std::size_t>(i)],
                  {{"status", "499"}, {"queue_ms", "1234.5"}, {"finish", "\"cancelled\""}}) == "");
  CHECK(missing(lines[3], {{"status", "499"}}) == "");
  CHECK(lines[3].find("\"queue_ms\"") == std::string::npos);
}

TEST_CASE("A probe that hears that the model is loading is no refusal") {
  logged_server logged;
  auto& live = logged.live;
  live.fake.set_loading();
  raw_client client(live.port());
  client.get("/health");
  CHECK(client.read_response().status == 503);
  client.post("/v1/completions", R"({"prompt":"a"})");
  CHECK(client.read_response().status == 503);

  const auto lines = logged.lines();
  REQUIRE(lines.size() == 1);
  CHECK(missing(lines[0], {{"route", "\"POST /v1/completions\""}, {"status", "503"}}) == "");
}

TEST_CASE("A flood of refusals writes few lines") {
  logged_server logged;
  raw_client client(logged.live.port());
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 500; ++i) {
    client.get("/nowhere");
    client.read_response();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  CHECK(static_cast<double>(logged.lines().size()) < 200 + 20 * took.count()); // some are let through each second
}

TEST_CASE("A client that leaves is logged as such") {
  logged_server logged;
  auto& live = logged.live;
  {
    raw_client client(live.port());
    client.post("/v1/completions", R"({"prompt":"a"})");
    const auto request = live.fake.next();
    client.close();
    CHECK(request->wait_cancelled());
  }
  const auto lines = logged.lines();
  REQUIRE(lines.size() == 1);
  CHECK(missing(lines[0], {{"status", "499"}, {"finish", "\"cancelled\""}, {"prompt_tokens", "2"}}) == "");
}

TEST_CASE("Requests on a WebSocket have their own lines") {
  logged_server logged;
  auto& live = logged.live;
  {
    ws_client client(live.port(), "X-Request-Id: socket-1\r\n");
    CHECK(client.upgrade.headers.at("x-request-id") == "socket-1");
    client.say(R"({"type":"generate","id":"a\nb","prompt":"secret"})");
    const auto request = live.fake.next();
    request->text("hidden");
    request->finish();
    request->done();
    client.hear();
    client.hear();
    client.say(R"({"type":"generate","id":"c","prompt":"x","top_p":7})");
    client.hear();
    client.say(R"({"type":"generate","id":"d","prompt":"x"})");
    live.fake.next();
  }
  const auto lines = logged.lines();
  REQUIRE(lines.size() == 4);
  CHECK(missing(lines[0], {{"id", "\"socket-1\""}, {"route", "\"GET /v1/ws\""}, {"status", "101"}}) == "");
  CHECK(missing(lines[1],
                {{"id", "\"socket-1\""},
                 {"frame", R"("a\nb")"},
                 {"route", "\"WS /v1/ws\""},
                 {"status", "200"},
                 {"completion_tokens", "6"},
                 {"finish", "\"stop\""}}) == "");
  CHECK(missing(lines[2], {{"frame", "\"c\""}, {"status", "400"}, {"field", "\"top_p\""}}) == "");
  CHECK(missing(lines[3], {{"frame", "\"d\""}, {"status", "499"}, {"finish", "\"cancelled\""}}) == "");
  for (const auto& line : lines)
    for (const auto* secret : {"secret", "hidden"})
      CHECK(line.find(secret) == line.npos);
}

TEST_CASE("Text lines are for people: names and values, quoted where needed") {
  logged_server logged(log_level::debug, log_format::text);
  {
    raw_client client(logged.live.port());
    client.get("/health", "X-Request-Id: probe\r\n");
    client.read_response();
  }
  const auto lines = logged.lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].find(" debug connection opened open=") != std::string::npos);
  CHECK(std::regex_search(lines[0], std::regex("^[0-9-]{10}T[0-9:]{8}\\.[0-9]{3}[+-][0-9]{2}:[0-9]{2} debug ")));
  CHECK(lines[1].find(" debug request id=probe client=127.0.0.1 route=\"GET /health\" status=200 total_ms=") !=
        std::string::npos);
  CHECK(lines[2].ends_with(" debug connection closed"));
}

TEST_CASE("Lines and texts for people do not fall into each other") {
  std::array<int, 2> ends;
  REQUIRE(::pipe2(ends.data(), O_DIRECT) == 0); // each write is one packet
  {
    const auto log = server_log::on_descriptor(ends[1], log_level::warn, log_format::text);
    log->print("[###   ] 50 %");
    log->start_thread();
    log->write(log_level::warn, "a line", {{"n", std::uint64_t(1)}});
    log->write(log_level::info, "not wanted");
    log->print("Serving it. Try:\n  curl\n");
  }
  ::close(ends[1]);
  std::vector<std::string> writes;
  std::array<char, 4096> buffer;
  for (ssize_t got; (got = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    writes.emplace_back(buffer.data(), static_cast<std::size_t>(got));
  ::close(ends[0]);
  REQUIRE(writes.size() == 3);
  CHECK(writes[0] == "[###   ] 50 %");
  CHECK(writes[1].ends_with(" warn a line n=1\n"));
  CHECK(writes[2] == "Serving it. Try:\n  curl\n");
}

TEST_CASE("On a terminal, a line takes the place of a progress bar") {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(master >= 0);
  REQUIRE(::grantpt(master) == 0);
  REQUIRE(::unlockpt(master) == 0);
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  REQUIRE(slave >= 0);
  {
    const auto log = server_log::on_descriptor(slave, log_level::info, log_format::text);
    log->print("[###   ] 50 %");
    log->print("[######] 100 %");
    log->write(log_level::error, "a line");
    log->print("text\n");
  }
  std::string screen;
  std::array<char, 4096> buffer;
  while (screen.find("text\r\n") == screen.npos) {
    const auto got = ::read(master, buffer.data(), buffer.size());
    REQUIRE(got > 0);
    screen.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(slave);
  ::close(master);
  CHECK(screen.starts_with("[###   ] 50 %\r\033[K[######] 100 %\r\033[K"));
  CHECK(screen.find(" \033[31m\033[1merror\033[m a line\r\ntext\r\n") != std::string::npos);
}
