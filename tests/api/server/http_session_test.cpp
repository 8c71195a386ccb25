#include "runtime/techniques/watermark/technique.hpp"
#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

response post(std::uint16_t port, std::string_view path, std::string_view body, std::string_view headers = {}) {
  raw_client client(port);
  client.post(path, body, headers);
  return client.read_response();
}

const std::string post_json = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

/// The server's answer to `bytes`, up to the end of the connection.
std::string answer_to(std::uint16_t port, std::string_view bytes) {
  raw_client client(port);
  client.send(bytes);
  return client.read_all();
}

} // namespace

TEST_CASE("Unknown paths, wrong methods and wrong content types have their statuses") {
  live_server live;
  const auto port = live.port();
  CHECK(get(port, "/nothing").status == 404);
  CHECK(get(port, "/nothing").body.find("\"code\":\"not_found\"") != std::string::npos);
  CHECK(get(port, "/v1/completions/").status == 404);
  const auto wrong = get(port, "/v1/chat/completions");
  CHECK(wrong.status == 405);
  CHECK(wrong.headers.at("allow") == "POST, OPTIONS");
  CHECK(post(port, "/v1/models", "{}").headers.at("allow") == "GET, HEAD, OPTIONS");
  raw_client client(port);
  client.request("POST", "/tokenize", R"({"prompt":"a"})", "Content-Type: text/plain\r\n");
  CHECK(client.read_response().status == 415);
  client.request("POST", "/tokenize", R"({"prompt":"a"})", "Content-Type: Application/JSON ; charset=utf-8\r\n");
  CHECK(client.read_response().status == 200);
  client.request("POST", "/tokenize", R"({"prompt":"a"})", "");
  CHECK(client.read_response().status == 415);
}

TEST_CASE("A body that is compressed is refused as such, not as bad JSON") {
  live_server live;
  raw_client client(live.port());
  const std::string json = "Content-Type: application/json\r\nContent-Encoding: ";
  client.request("POST", "/tokenize", "\x1f\x8b", json + "gzip\r\n");
  const auto refused = client.read_response();
  CHECK(refused.status == 415);
  CHECK(refused.body.find("`Content-Encoding: gzip` is not undone here") != std::string::npos);
  client.request("POST", "/tokenize", R"({"prompt":"a"})", json + "identity\r\n");
  CHECK(client.read_response().status == 200);
}

TEST_CASE("A bad body is answered with OpenAI's error and the connection goes on") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a","temperature":9})");
  auto answer = client.read_response();
  CHECK(answer.status == 400);
  CHECK(answer.headers.at("content-type") == "application/json");
  CHECK(answer.body ==
        R"({"error":{"message":"`temperature` must be a number between 0 and 2, not 9",)"
        R"("type":"invalid_request_error","param":"temperature","code":"invalid_value"}})");
  client.post("/v1/chat/completions", "{");
  answer = client.read_response();
  CHECK(answer.status == 400);
  CHECK(answer.body.find("\"param\":null") != std::string::npos);
  client.post("/v1/completions", R"({"prompt":"a","model":"gpt-4"})");
  answer = client.read_response();
  CHECK(answer.status == 404);
  CHECK(answer.body.find("\"code\":\"model_not_found\"") != std::string::npos);
  client.get("/health");
  CHECK(client.read_response().status == 200);
  CHECK(live.fake.nothing_submitted());
}

TEST_CASE("Models are listed and found, even with an encoded slash") {
  live_server live;
  const auto port = live.port();
  CHECK(get(port, "/v1/models")
          .body.starts_with(R"({"object":"list","data":[{"id":"org/bytes","object":"model","created":)"));
  CHECK(get(port, "/v1/models/org/bytes").body.starts_with(R"({"id":"org/bytes","object":"model","created":)"));
  CHECK(get(port, "/v1/models/org%2Fbytes").status == 200);
  CHECK(get(port, "/v1/models/org%2fbytes?x=y").status == 200);
  CHECK(get(port, "/v1/models/other").status == 404);
  CHECK(get(port, "/v1/models/org/bytes:latest").body.starts_with(R"({"id":"org/bytes",)"));
  CHECK(get(port, "/v1/models/gpt").status == 404);
  live.fake.served->aliases = {"gpt"};
  CHECK(get(port, "/v1/models/gpt").body.starts_with(R"({"id":"org/bytes",)"));
  CHECK(get(port, "/v1/models/%").status == 404);
  CHECK(get(port, "/v1/models/%ff").status == 404);
}

TEST_CASE("Models state whether their results depend on the schedule") {
  live_server live;
  const auto about = [&](const std::string& path) { return get(live.port(), path).body; };
  for (const bool invariant : {true, false}) {
    live.fake.served->schedule_invariant = invariant;
    const auto field = std::string(R"("schedule_invariant":)") + (invariant ? "true" : "false");
    CHECK(about("/v1/models").find(field) != std::string::npos);
    CHECK(about("/v1/models/org/bytes").find(field) != std::string::npos);
  }
}

TEST_CASE("Models state what requests that name no sampling get, and who says so") {
  live_server live;
  CHECK(get(live.port(), "/v1/models")
          .body.find(R"("sampling":{"temperature":0.8,"top_k":40,"top_p":0.95,"min_p":0.05,"named_by_model":false,)"
                     R"("source":"defaults, as the model names none"})") != std::string::npos);
  live.fake.served->defaults.sampling.temperature = 0.6f;
  live.fake.served->defaults.sampling_source = "generation_config.json";
  CHECK(get(live.port(), "/v1/models/org/bytes")
          .body.find(R"("sampling":{"temperature":0.6,"named_by_model":true,"source":"generation_config.json"})") !=
        std::string::npos);
}

TEST_CASE("Text goes to tokens and back") {
  live_server live;
  const auto port = live.port();
  CHECK(post(port, "/tokenize", R"({"prompt":"ab"})").body == R"({"tokens":[256,97,98],"count":3})");
  CHECK(post(port, "/detokenize", R"({"tokens":[97,34]})").body == R"({"prompt":"a\""})");
  CHECK(post(port, "/detokenize", R"({"tokens":[97,255]})").body == "{\"prompt\":\"a\xef\xbf\xbd\"}");
  CHECK(post(port, "/detokenize", R"({"tokens":[-1]})").status == 400);
  CHECK(post(port, "/v1/watermark/detect", R"({"tokens":[97],"watermark":{"type":"green","key":"k"}})").body ==
        R"({"object":"watermark.detection","type":"green","tokens":0,"green":0,"z":0,"p":1})");
}

TEST_CASE("Clients that tokenise over HTTP learn the special tokens") {
  live_server live;
  CHECK(get(live.port(), "/tokenizer_info").body == R"({"bos_token":"<s>","eos_token":null,"model_max_length":200})");
  live.fake.served->encode = nullptr;
  CHECK(get(live.port(), "/tokenizer_info").status == 404);
}

TEST_CASE("While the model loads, endpoints that need it answer 503") {
  live_server live;
  live.fake.set_loading();
  const auto port = live.port();
  const auto health = get(port, "/health");
  CHECK(health.status == 503);
  CHECK(health.headers.contains("retry-after"));
  CHECK(health.body ==
        R"({"status":"loading","progress":0.25,"done_bytes":2,"total_bytes":8,"detail":"reading weights"})");
  for (const auto* path : {"/v1/completions", "/v1/chat/completions", "/tokenize"}) {
    const auto answer = post(port, path, "{}");
    CHECK(answer.status == 503);
    CHECK(answer.headers.contains("retry-after"));
    CHECK(answer.body.starts_with("{\"error\":{"));
  }
  CHECK(get(port, "/v1/models").status == 503);
  const auto metrics = get(port, "/metrics");
  CHECK(metrics.status == 200);
  CHECK(metrics.body.find("troupe_ready 0") != std::string::npos);
}

TEST_CASE("After a permanent failure, health has no Retry-After") {
  live_server live;
  live.fake.set_failed();
  const auto health = get(live.port(), "/health");
  CHECK(health.status == 503);
  CHECK(health.body.starts_with(R"({"status":"failed",)"));
  CHECK(health.body.find("the device is lost") != std::string::npos);
  CHECK_FALSE(health.headers.contains("retry-after"));
}

TEST_CASE("HEAD is GET without the body, OPTIONS lists the methods") {
  live_server live;
  raw_client client(live.port());
  client.request("HEAD", "/health", {}, {});
  const auto head = client.read_response(true);
  CHECK(head.status == 200);
  CHECK(head.headers.at("content-length") == "15");
  client.request("OPTIONS", "/v1/completions", {}, {});
  const auto options = client.read_response();
  CHECK(options.status == 204);
  CHECK(options.headers.at("allow") == "POST, OPTIONS");
  client.request("OPTIONS", "/nothing", {}, {});
  CHECK(client.read_response().status == 404);
}

TEST_CASE("With API keys, everything but health needs one") {
  server_options options;
  options.api_keys = {"first", "second key"};
  live_server live(options);
  const auto port = live.port();
  CHECK(get(port, "/health").status == 200);
  for (const auto* path : {"/v1/models", "/metrics", "/nothing", "/v1/ws"})
    CHECK(get(port, path).status == 401);
  const auto refused = post(port, "/v1/completions", R"({"prompt":"a"})");
  CHECK(refused.status == 401);
  CHECK(refused.headers.at("www-authenticate") == "Bearer");
  CHECK(refused.body.find("\"code\":\"invalid_api_key\"") != std::string::npos);
  for (const auto* wrong :
       {"Bearer", "Bearer ", "Bearer firs", "Bearer firstx", "Basic first", "first", "Bearer x\tfirst"})
    CHECK(get(port, "/v1/models", "Authorization: " + std::string(wrong) + "\r\n").status == 401);
  CHECK(get(port, "/v1/models", "Authorization: Bearer first\r\n").status == 200);
  CHECK(get(port, "/v1/models", "authorization: bearer  second key\r\n").status == 200);
  CHECK(live.fake.nothing_submitted());
}

TEST_CASE("Requests say who asks: the key, or without keys the address") {
  const auto asker = [](live_server& live, std::string_view headers) {
    raw_client client(live.port());
    client.post("/v1/completions", R"({"prompt":"a"})", headers);
    const auto request = live.fake.next();
    request->done();
    client.read_response();
    return request->asked.client;
  };
  live_server open;
  CHECK(asker(open, "") == "127.0.0.1");
  server_options options;
  options.api_keys = {"first", "second"};
  live_server locked(options);
  CHECK(asker(locked, "Authorization: Bearer second\r\n") == "key 2");
  CHECK(asker(locked, "Authorization: Bearer first\r\n") == "key 1");
}

TEST_CASE("A key for /metrics opens it and nothing else") {
  const auto opens = [](std::uint16_t port, const char* path, const char* key) {
    return get(port, path, "Authorization: Bearer " + std::string(key) + "\r\n").status == 200;
  };
  server_options options;
  options.metrics_key = "scrape";
  live_server open(options);
  CHECK(get(open.port(), "/metrics").status == 401);
  CHECK(opens(open.port(), "/metrics", "scrape"));
  CHECK_FALSE(opens(open.port(), "/metrics", "scrap"));
  CHECK(get(open.port(), "/v1/models").status == 200);

  options.api_keys = {"first"};
  live_server locked(options);
  CHECK(get(locked.port(), "/metrics").status == 401);
  CHECK(opens(locked.port(), "/metrics", "scrape"));
  CHECK(opens(locked.port(), "/metrics", "first"));
  CHECK_FALSE(opens(locked.port(), "/v1/models", "scrape"));
}

TEST_CASE("Only listed origins get CORS headers") {
  server_options options;
  options.api_keys = {"k"};
  options.cors_origins = {"http://good.example"};
  live_server live(options);
  const auto port = live.port();
  raw_client client(port);
  client.request("OPTIONS", "/v1/chat/completions", {},
                 "Origin: http://good.example\r\nAccess-Control-Request-Method: POST\r\n"
                 "Access-Control-Request-Headers: authorization,content-type\r\n");
  const auto preflight = client.read_response();
  CHECK(preflight.status == 204);
  CHECK(preflight.headers.at("access-control-allow-origin") == "http://good.example");
  CHECK(preflight.headers.at("access-control-allow-methods") == "POST, OPTIONS");
  CHECK(preflight.headers.at("access-control-allow-headers") == "authorization,content-type");
  CHECK(preflight.headers.at("vary") == "Origin");
  const auto refused = get(port, "/v1/models", "Origin: http://good.example\r\n");
  CHECK(refused.status == 401);
  CHECK(refused.headers.at("access-control-allow-origin") == "http://good.example"); // so that the page can read why
  const auto other = get(port, "/health", "Origin: http://bad.example\r\n");
  CHECK(other.status == 403);
  CHECK_FALSE(other.headers.contains("access-control-allow-origin"));

  server_options all;
  all.cors_origins = {"*"};
  live_server open(all);
  CHECK(get(open.port(), "/health", "Origin: http://x\r\n").headers.at("access-control-allow-origin") == "*");
}

TEST_CASE("Pages of other sites and foreign hosts are refused") {
  server_options options;
  options.allowed_hosts = {"api.example"};
  live_server live(options);
  const auto status = [&](std::string_view method, std::string_view path, std::string_view headers) {
    raw_client client(live.port());
    client.send(std::string(method) + ' ' + std::string(path) + " HTTP/1.1\r\n" + std::string(headers) +
                "Content-Type: application/json\r\nContent-Length: 0\r\n\r\n");
    return client.read_response(method == "HEAD").status;
  };
  for (const auto* path : {"/health", "/v1/models", "/metrics", "/v1/ws", "/nothing"}) {
    CHECK(status("GET", path, "Host: evil.example:8080\r\n") == 403);
    CHECK(status("GET", path, "Host: evil.example\r\nOrigin: http://evil.example\r\n") == 403);
    for (const auto* origin : {"http://evil.example", "null", "http://localhost:1", "localhost", ""})
      CHECK(status("GET", path, "Host: localhost\r\nOrigin: " + std::string(origin) + "\r\n") == 403);
    CHECK(status("GET", path, "Host: localhost:80\r\nOrigin: http://localhost:80\r\n") != 403);
  }
  CHECK(status("POST", "/v1/completions", "Host: localhost\r\nOrigin: http://evil.example\r\n") == 403);
  CHECK(status("OPTIONS", "/health", "Host: evil.example\r\n") == 403);
  CHECK(status("GET", "http://evil.example/health", "Host: localhost\r\n") == 403);
  for (const auto* host : {"127.0.0.1", "localhost:1", "[::1]:80", "API.example:443"})
    CHECK(status("GET", "/health", "Host: " + std::string(host) + "\r\n") == 200);
  raw_client old(live.port());
  old.send("GET /health HTTP/1.0\r\n\r\n");
  CHECK(old.read_response().status == 200);
  raw_client told(live.port());
  told.send("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  CHECK(told.read_response().body.find("`evil.example`; --allowed-hosts allows it") != std::string::npos);

  server_options keyed;
  keyed.api_keys = {"k"};
  live_server open(keyed);
  CHECK(get(open.port(), "http://any.example/health").status == 200);
}

TEST_CASE("Requests that are too large are refused without reading them in full") {
  server_options options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 2000;
  live_server live(options);
  const auto port = live.port();
  const auto too_large = post(port, "/tokenize", "{\"prompt\":\"" + std::string(2000, 'x') + "\"}");
  CHECK(too_large.status == 413);
  CHECK(too_large.headers.at("connection") == "close");
  CHECK(too_large.body.find("\"code\":\"request_too_large\"") != std::string::npos);
  // The body is only announced: the answer arrives although none of it was sent.
  CHECK(answer_to(port, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
          .starts_with("HTTP/1.1 413 "));
  std::string chunked = post_json + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20; ++i)
    chunked += "64\r\n" + std::string(100, ' ') + "\r\n";
  CHECK(answer_to(port, chunked).starts_with("HTTP/1.1 413 "));
  CHECK(get(port, "/health", "X: " + std::string(3000, 'x') + "\r\n").status == 431);
}

TEST_CASE("Anything but HTTP gets a 400 and the end of the connection") {
  live_server live;
  for (const auto* bytes :
       {"nonsense\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        "\x16\x03\x01\x02\r\n\r\n", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    CAPTURE(bytes);
    CHECK(answer_to(live.port(), bytes).starts_with("HTTP/1.1 400 "));
  }
  raw_client nameless(live.port());
  nameless.send("GET /health HTTP/1.1\r\n\r\n");
  CHECK(nameless.read_response().status == 400);
  CHECK(get(live.port(), "/health").status == 200);
}

TEST_CASE("A refused request leaves the connection usable when its body is small") {
  live_server live;
  raw_client client(live.port());
  client.post("/nothing", "{\"a\":1}");
  CHECK(client.read_response().status == 404);
  client.get("/health");
  CHECK(client.read_response().status == 200);
  client.request("POST", "/nothing", std::string(100'000, 'x'), {});
  CHECK(client.read_response().headers.at("connection") == "close");
}

TEST_CASE("A client that expects 100 Continue gets it") {
  live_server live;
  raw_client client(live.port());
  client.send(post_json + "Content-Length: 14\r\nExpect: 100-continue\r\n\r\n");
  CHECK(client.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(R"({"prompt":"a"})");
  CHECK(client.read_response().body == R"({"tokens":[256,97],"count":2})");
}

TEST_CASE("Bodies may come in chunks and in pieces") {
  live_server live;
  raw_client client(live.port());
  client.send(post_json + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n");
  client.send("9\r\nmpt\":\"a\"}\r\n0\r\n\r\nGET /health HTT");
  CHECK(client.read_response().body == R"({"tokens":[256,97],"count":2})");
  client.send("P/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  CHECK(client.read_response().headers.at("connection") == "close");
  CHECK(client.read_all().empty());
}

TEST_CASE("Clients that take too long are disconnected") {
  server_options impatient;
  impatient.idle_timeout = std::chrono::milliseconds(50);
  live_server short_lived(impatient);
  CHECK(answer_to(short_lived.port(), "").empty());

  server_options options;
  options.header_timeout = std::chrono::milliseconds(50);
  options.body_timeout = std::chrono::milliseconds(50);
  live_server live(options);
  const auto port = live.port();
  CHECK(answer_to(port, "GET /health HT").starts_with("HTTP/1.1 408 "));
  CHECK(answer_to(port, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
          .starts_with("HTTP/1.1 408 "));
}

TEST_CASE("A client that reads nothing is disconnected, and its request cancelled") {
  server_options options;
  options.sink_bytes = 16 << 10;
  options.write_timeout = std::chrono::milliseconds(100);
  live_server live(options);
  raw_client client(live.port(), 4096);
  client.post("/v1/completions", R"({"prompt":"a","stream":true,"max_tokens":100})");
  const auto request = live.fake.next();
  // Far more than the kernel's buffers.
  for (int i = 0; i < 1000; ++i)
    request->text(std::string(1000, 'x'));
  CHECK(request->wait_cancelled());
}

TEST_CASE("A connection above the limit gets 503 with Retry-After") {
  server_options options;
  options.max_connections = 2;
  live_server live(options);
  raw_client first(live.port()), second(live.port());
  for (auto* client : {&first, &second}) {
    client->get("/health");
    CHECK(client->read_response().status == 200);
  }
  {
    raw_client third(live.port());
    const auto refused = third.read_response();
    CHECK(refused.status == 503);
    CHECK(refused.headers.contains("retry-after"));
    CHECK(third.read_all().empty());
  }
  first.get("/health");
  CHECK(first.read_response().status == 200);
  first.get("/health", "Connection: close\r\n");
  CHECK(first.read_response().status == 200);
  CHECK(first.read_all().empty());
  // The server sees the end a moment after the client.
  const auto until = std::chrono::steady_clock::now() + patience;
  int status = 503;
  while (status == 503 && std::chrono::steady_clock::now() < until) {
    raw_client again(live.port());
    again.get("/health");
    status = again.read_response().status;
  }
  CHECK(status == 200);
}

TEST_CASE("Metrics show latencies, outcomes and the engine's counters") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a"})");
  const auto request = live.fake.next();
  request->text("x");
  request->text("yz");
  request->finish(finish_reason::length);
  request->done(finish_reason::length);
  client.read_response();
  client.post("/v1/completions", R"({"prompt":"a"})");
  live.fake.next()->send(error{errc::overloaded, "full", {}});
  client.read_response();
  client.get("/metrics");
  const auto answer = client.read_response();
  CHECK(answer.headers.at("content-type") == "text/plain; version=0.0.4; charset=utf-8");
  for (const auto* line : {"troupe_time_to_first_token_seconds_count 1\n",
                           "troupe_inter_token_seconds_count 2\n",
                           "troupe_queue_seconds_count 1\n",
                           "troupe_queue_seconds_bucket{le=\"0.001\"} 1\n",
                           "troupe_requests_total{outcome=\"length\"} 1\n",
                           "troupe_requests_total{outcome=\"refused\"} 1\n",
                           "troupe_requests_in_flight 0\n",
                           "troupe_connections 1\n",
                           "troupe_http_responses_total{status=\"429\"} 1\n",
                           "troupe_sequences_running 3\n",
                           "troupe_prompt_tokens_total 10\n",
                           "troupe_prefix_cache_queries_total 10\n",
                           "troupe_prompt_tokens_cached_total 4\n",
                           "troupe_prefix_cache_hit_rate 0.4",
                           "# TYPE troupe_preemptions_total counter\n",
                           "# TYPE troupe_kv_blocks_in_use gauge\n",
                           "troupe_host_blocks 8\n",
                           "troupe_host_blocks_in_use 7\n",
                           "troupe_kv_blocks_parked_total 6\n",
                           "troupe_kv_blocks_restored_total 5\n",
                           "troupe_spec_decode_num_drafts_total 11\n",
                           "troupe_spec_decode_num_draft_tokens_total 44\n",
                           "troupe_spec_decode_num_accepted_tokens_total 33\n",
                           "troupe_step_rows 96\n",
                           "troupe_step_expected_seconds{rows=\"1\"} 0.0625\n",
                           "troupe_step_expected_seconds{rows=\"64\"} 0.25\n",
                           "troupe_step_logit_row_seconds 0.125\n",
                           "troupe_step_attended_position_seconds 0.03125\n",
                           "troupe_step_read_position_seconds 0.015625\n",
                           "troupe_step_time_error_ratio 0.125\n",
                           "# TYPE troupe_measured_steps gauge\n",
                           "troupe_measured_steps 12\n",
                           "troupe_ready 1\n",
                           "troupe_model_info{model=\"org/bytes\","}) {
    CAPTURE(line);
    CHECK(answer.body.find(line) != std::string::npos);
  }
  CHECK(answer.body.find("replica=\"") == std::string::npos);
  CHECK(answer.body.find("_total gauge") == std::string::npos);
}

TEST_CASE("Metrics name the replica where there are several") {
  live_server live;
  live.fake.replicas = 2;
  raw_client client(live.port());
  client.get("/metrics");
  const auto body = client.read_response().body;
  for (const auto* line :
       {"troupe_sequences_running{replica=\"0\"} 3\n", "troupe_sequences_running{replica=\"1\"} 3\n",
        "troupe_restarts_total{replica=\"1\"} 0\n", "troupe_step_expected_seconds{rows=\"64\",replica=\"1\"} 0.25\n"}) {
    CAPTURE(line);
    CHECK(body.find(line) != std::string::npos);
  }
  const std::string type = "# TYPE troupe_sequences_running gauge\n";
  CHECK(body.find(type) != std::string::npos);
  CHECK(body.find(type) == body.rfind(type));
}

TEST_CASE("Stopping lets running requests finish, and cancels them after the grace time") {
  server_options options;
  SUBCASE("finish") {
    live_server live(options);
    raw_client busy(live.port()), idle(live.port());
    idle.get("/health");
    idle.read_response();
    busy.post("/v1/completions", R"({"prompt":"a","stream":true})");
    const auto request = live.fake.next();
    request->text("x");
    busy.read_until("\"x\"");
    live.begin_stop();
    CHECK(idle.read_all().empty());
    request->finish();
    request->done();
    CHECK(busy.read_all().ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
    live.stop();
  }
  SUBCASE("cancelled") {
    options.stop_grace = std::chrono::milliseconds(50);
    live_server live(options);
    raw_client busy(live.port());
    busy.post("/v1/completions", R"({"prompt":"a","stream":true})");
    const auto request = live.fake.next();
    live.stop();
    CHECK(request->wait_cancelled());
    const auto answer = busy.read_response();
    CHECK(answer.status == 503);
    CHECK(answer.headers.at("connection") == "close");
    CHECK(busy.read_all().empty());
  }
}

TEST_CASE("An unexpected exception is a 500, and the connection goes on") {
  live_server live;
  live.fake.served->encode = [](std::string_view, bool) -> std::vector<token_id> { throw std::logic_error("a bug"); };
  raw_client client(live.port());
  for (const auto* path : {"/v1/completions", "/tokenize"}) {
    client.post(path, R"({"prompt":"a"})");
    const auto answer = client.read_response();
    CHECK(answer.status == 500);
    CHECK(answer.body == R"({"error":{"message":"a bug","type":"server_error","param":null,"code":"internal_error"}})");
  }
}

TEST_CASE("A request without memory for it is answered, and the connection goes on") {
  live_server live;
  raw_client client(live.port());
  live.fake.run_short_of_memory();
  client.post("/v1/completions", R"({"prompt":["a","b"]})");
  const auto answer = client.read_response();
  CHECK(answer.status == 503);
  CHECK(answer.body.find("there is not enough memory for this request") != std::string::npos);
  CHECK(live.fake.next()->wait_cancelled()); // the other prompt
  client.post("/v1/completions", R"({"prompt":"a"})");
  live.fake.next()->done();
  CHECK(client.read_response().status == 200);
}

TEST_CASE("An address in use is refused with a sentence") {
  live_server live;
  fake_service fake;
  server_options options;
  options.port = live.port();
  try {
    server second(fake, options);
    FAIL("two servers cannot have one port");
  } catch (const failure& f) {
    CHECK(f.what_failed().message.find("cannot listen on 127.0.0.1:") == 0);
  }
  options.host = "256.1.1.1.nowhere.invalid";
  CHECK_THROWS_AS(server(fake, options), failure);
}

TEST_CASE("Endpoints that generate nothing tell which fields nothing reads, too") {
  live_server live;
  const auto warning = [&](const char* path, const char* body) {
    const auto answer = post(live.port(), path, body);
    CHECK(answer.status == 200);
    const auto found = answer.headers.find("x-troupe-warning");
    return found == answer.headers.end() ? std::string() : found->second;
  };
  CHECK(warning("/tokenize", R"({"promt":"x","prompt":"a"})") ==
        "`promt` is not known here and has no effect; did you mean `prompt`?");
  CHECK(warning("/detokenize", R"({"tokens":[97],"skip_special_token":true})") ==
        "`skip_special_token` is not known here and has no effect; did you mean `skip_special_tokens`?");
  // What a template leaves out is told wherever it is rendered.
  live.fake.served->render = [](const chat_input&) { return std::string("user: x"); };
  const std::string asks = R"("messages":[{"role":"user","content":"x"}],"tools":[)";
  const std::string none = "the chat template shows none of the `tools`";
  const auto function = R"({"type":"function","function":{"name":"f"}}]})";
  CHECK(warning("/tokenize", ("{" + asks + function).c_str()) == none);
  CHECK(warning("/v1/messages/count_tokens",
                (R"({"model":"org/bytes","max_tokenz":1,)" + asks + R"({"name":"f","input_schema":{}}]})").c_str()) ==
        "`max_tokenz` is not known here and has no effect; did you mean `max_tokens`?; " + none);
  CHECK(warning("/v1/responses/input_tokens",
                R"({"input":"x","tools":[{"type":"function","name":"f","parameters":{}},{"type":"web_search"}]})")
          .ends_with("; " + none));
  CHECK(warning("/v1/watermark/detect", R"({"tokens":[97],"watermark":{"type":"green","key":"k"},"mark":1})") ==
        "`mark` is not known here and has no effect");
  CHECK(warning("/tokenize", R"({"model":"org/bytes","prompt":"a","add_special_tokens":false})").empty());
  CHECK(warning("/tokenize", R"({"messages":[{"role":"user","content":"x"}],"tools":[],"user":"me"})").empty());
  CHECK(warning("/detokenize", R"({"tokens":[97]})").empty());
}

TEST_CASE("A number that is out of range is not called malformed") {
  live_server live;
  const auto answer = post(live.port(), "/v1/completions", R"({"prompt":"a","temperature":1e400})");
  CHECK(answer.status == 400);
  CHECK(answer.body.find("the body: the number 1e400 is out of range, which ends at about 1.8e308") !=
        std::string::npos);
}

TEST_CASE("The server's watermark is in its own settings") {
  server_options options;
  const auto key = watermarks::key_of("the server's own");
  options.techniques.set(watermark_technique, std::make_shared<watermarks::settings>(watermarks::settings{.key = key}));
  live_server live(options);
  raw_client client(live.port());
  client.post("/v1/completions", R"({"prompt":"a","watermark":"gumbel"})");
  const auto request = live.fake.next();
  const auto* mark = watermarks::mark_of(request->asked.sampling.techniques.find(watermark_technique));
  REQUIRE(mark);
  CHECK(mark->key == key);
  CHECK(request->asked.model == "org/bytes");
  request->done();
  CHECK(client.read_response().status == 200);
}
