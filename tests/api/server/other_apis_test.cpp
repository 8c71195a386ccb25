// Ollama's API, responses and embeddings over a connection.
#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

response fetch(std::uint16_t port, std::string_view method, std::string_view path, std::string_view body = {},
               std::string_view headers = {}) {
  raw_client client(port);
  if (method == "POST")
    client.post(path, body, headers);
  else
    client.request(method, path, {}, headers);
  return client.read_response();
}

/// The answer to a POST whose request the engine answers with "ab".
response ab_answered(live_server& live, std::string_view path, std::string_view body, std::string_view headers = {}) {
  raw_client client(live.port());
  client.post(path, body, headers);
  const auto request = live.fake.next();
  request->text("ab");
  request->finish();
  request->done();
  return client.read_response();
}

std::string response_id(const std::string& body) {
  const auto at = body.find("resp_");
  REQUIRE(at != body.npos);
  return body.substr(at, 53);
}

} // namespace

TEST_CASE("Ollama's endpoints answer as Ollama does, errors included") {
  live_server live;
  const auto port = live.port();
  const auto whole = ab_answered(live, "/api/generate", R"({"model":"org/bytes","prompt":"x","stream":false})");
  CHECK(whole.status == 200);
  CHECK(whole.body.find(R"("response":"ab","done":true,"done_reason":"stop")") != std::string::npos);
  const auto stream = ab_answered(live, "/api/chat",
                                  R"({"model":"org/bytes","messages":[{"role":"user","content":"x"}]})");
  CHECK(stream.headers.at("content-type") == "application/x-ndjson");
  CHECK(stream.body.find(R"("message":{"role":"assistant","content":"ab"},"done":false})") != std::string::npos);
  CHECK(stream.body.ends_with("}\n"));
  CHECK(fetch(port, "POST", "/api/generate", R"({"model":"org/bytes"})").body.find(R"("done_reason":"load")") !=
        std::string::npos);
  CHECK(live.fake.nothing_submitted());
  CHECK(fetch(port, "GET", "/api/version").body.starts_with(R"({"version":")"));
  CHECK(fetch(port, "GET", "/api/tags").body.find(R"("name":"org/bytes:latest")") != std::string::npos);
  CHECK(fetch(port, "GET", "/api/ps").status == 200);
  CHECK(fetch(port, "POST", "/api/show", R"({"model":"org/bytes"})").status == 200);
  CHECK(fetch(port, "POST", "/api/show", R"({"model":"x"})").body ==
        R"({"error":"model 'x' not found; this server has 'org/bytes'"})");
  CHECK(fetch(port, "GET", "/api/nothing").body == R"({"error":"there is nothing at /api/nothing"})");
  CHECK(fetch(port, "GET", "/api/chat").status == 405);
  const auto bad = fetch(port, "POST", "/api/chat", "{");
  CHECK(bad.status == 400);
  CHECK(bad.body.starts_with(R"({"error":")"));
}

TEST_CASE("Ollama's clients find a server, need no content type, and pull what is there") {
  live_server live;
  const auto port = live.port();
  CHECK(fetch(port, "GET", "/").body == "Ollama is running");
  raw_client probe(port);
  probe.request("HEAD", "/", "", "");
  CHECK(probe.read_head().status == 200);
  const auto bare = [&](std::string_view path, const std::string& body, const std::string& headers) {
    raw_client client(port);
    client.request("POST", path, body, headers);
    return client.read_response();
  };
  const std::string named = R"({"model":"org/bytes"})";
  CHECK(bare("/api/show", named, "").status == 200);
  CHECK(bare("/api/generate", named, "Content-Type: application/x-www-form-urlencoded\r\n").status == 200);
  CHECK(bare("/v1/completions", named, "").status == 415);
  CHECK(bare("/api/show", named, "Content-Type: text/plain\r\nOrigin: https://evil.example\r\n").status == 403);
  const auto pulled = bare("/api/pull", named, "");
  CHECK(pulled.headers.at("content-type") == "application/x-ndjson");
  CHECK(pulled.body.ends_with("{\"status\":\"success\"}\n"));
  CHECK(bare("/api/pull", R"({"model":"org/bytes","stream":false})", "").body == R"({"status":"success"})");
  CHECK(bare("/api/pull", R"({"model":"x"})", "").status == 404);
}

TEST_CASE("Anthropic's endpoints answer as Anthropic does, errors included") {
  server_options options;
  options.max_body_bytes = 2000;
  options.api_keys = {"first"};
  live_server live(options);
  const auto port = live.port();
  const std::string key = "x-api-key: first\r\nanthropic-version: 2023-06-01\r\nanthropic-beta: x-2026\r\n";
  const std::string hi = R"("messages":[{"role":"user","content":"x"}],"metadata":{"user_id":"ann"})";
  const auto whole = ab_answered(live, "/v1/messages?beta=true", R"({"max_tokens":9,)" + hi + '}', key);
  CHECK(whole.status == 200);
  CHECK(whole.body.find(R"("content":[{"type":"text","text":"ab"}],"stop_reason":"end_turn")") != std::string::npos);
  const auto stream = ab_answered(live, "/v1/messages", R"({"max_tokens":9,"stream":true,)" + hi + '}',
                                  "Authorization: Bearer of-something-else\r\n" + key);
  CHECK(stream.headers.at("content-type") == "text/event-stream");
  CHECK(stream.body.starts_with("event: message_start\ndata: {\"type\":\"message_start\""));
  CHECK(stream.body.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
  CHECK(fetch(port, "POST", "/v1/messages/count_tokens", '{' + hi + '}', key).body == R"({"input_tokens":18})");

  const auto error = [](const std::string& type) {
    return R"({"type":"error","error":{"type":")" + type + R"(","message":")";
  };
  const auto bad = fetch(port, "POST", "/v1/messages", '{' + hi + '}', key + "X-Request-Id: mine\r\n");
  CHECK(bad.status == 400);
  CHECK(bad.body == error("invalid_request_error") + R"(`max_tokens` is required"},"request_id":"mine"})");
  const auto refused = fetch(port, "POST", "/v1/messages", '{' + hi + '}', "x-api-key: other\r\n");
  CHECK(refused.status == 401);
  CHECK(refused.body.starts_with(error("authentication_error")));
  const auto large = fetch(port, "POST", "/v1/messages", "{\"x\":\"" + std::string(3000, 'x') + "\"}", key);
  CHECK(large.status == 413);
  CHECK(large.body.starts_with(error("request_too_large")));
  const auto absent = fetch(port, "POST", "/v1/messages", R"({"model":"claude","max_tokens":9,)" + hi + '}', key);
  CHECK(absent.status == 404);
  CHECK(absent.body.starts_with(error("not_found_error")));
  CHECK(fetch(port, "GET", "/v1/messages", {}, key).body.starts_with(error("invalid_request_error")));
  CHECK(live.fake.nothing_submitted());
}

TEST_CASE("Anthropic's clients see models in their own form, and the request's id in their own header") {
  live_server live;
  const auto port = live.port();
  const std::string version = "anthropic-version: 2023-06-01\r\n";
  const auto list = fetch(port, "GET", "/v1/models?limit=1000", {}, version + "X-Request-Id: mine\r\n");
  CHECK(list.headers.at("request-id") == "mine");
  CHECK(
    list.body.starts_with(R"({"data":[{"type":"model","id":"org/bytes","display_name":"org/bytes","created_at":")"));
  CHECK(list.body.ends_with(
    R"("max_input_tokens":200,"max_tokens":200}],"has_more":false,"first_id":"org/bytes","last_id":"org/bytes"})"));
  CHECK(
    fetch(port, "GET", "/v1/models/org/bytes", {}, version).body.starts_with(R"({"type":"model","id":"org/bytes")"));
  CHECK(fetch(port, "GET", "/v1/models?after_id=org%2Fbytes", {}, version).body ==
        R"({"data":[],"has_more":false,"first_id":null,"last_id":null})");
  for (const std::string query : {"?limit=0", "?limit=1001", "?limit=x", "?after_id=gpt", "?before_id="}) {
    const auto bad = fetch(port, "GET", "/v1/models" + query, {}, version);
    CHECK(bad.status == 400);
    CHECK(bad.body.starts_with(R"({"type":"error","error":{"type":"invalid_request_error")"));
  }
  CHECK(fetch(port, "GET", "/v1/models/gpt", {}, version)
          .body.starts_with(R"({"type":"error","error":{"type":"not_found_error")"));
  const auto others = fetch(port, "GET", "/v1/models?limit=0");
  CHECK(others.body.starts_with(R"({"object":"list","data":[{"id":"org/bytes","object":"model")"));
  CHECK_FALSE(others.headers.contains("request-id"));
  CHECK(fetch(port, "GET", "/v1/models/gpt").body.starts_with(R"({"error":{"message")"));
  CHECK(fetch(port, "POST", "/v1/messages", "{}").headers.contains("request-id"));
}

TEST_CASE("What has no effect is told in a header, and a context that is exceeded by its code") {
  live_server live;
  const auto warned = ab_answered(live, "/api/generate",
                                  R"({"model":"org/bytes","prompt":"x","stream":false,"options":{"max_tokens":1}})");
  CHECK(warned.headers.at("x-troupe-warning") == "`options.max_tokens` is not known here and has no effect");
  CHECK(ab_answered(live, "/v1/completions", R"({"prompt":"x","top_kk":1})").headers.at("x-troupe-warning") ==
        "`top_kk` is not known here and has no effect; did you mean `top_k`?");
  CHECK(ab_answered(live, "/v1/completions", R"({"prompt":"x"})").headers.count("x-troupe-warning") == 0);
  const std::string text(300, 'x');
  for (const auto& [path, body] : {
         std::pair<std::string, std::string>{"/v1/completions", R"({"prompt":")" + text + "\"}"},
         {"/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + text + "\"}]}"},
         {"/v1/responses", R"({"input":")" + text + "\"}"},
         {"/v1/embeddings", R"({"input":")" + text + "\"}"},
         {"/api/generate", R"({"model":"org/bytes","prompt":")" + text + "\"}"},
         {"/api/chat", R"({"model":"org/bytes","messages":[{"role":"user","content":")" + text + "\"}]}"},
         {"/api/embeddings", R"({"model":"org/bytes","prompt":")" + text + "\"}"},
       }) {
    CAPTURE(path);
    const auto refused = fetch(live.port(), "POST", path, body);
    CHECK(refused.status == 400);
    const bool ollama = path.starts_with("/api/");
    CHECK(refused.body.starts_with(ollama ? R"({"error":"This model's maximum context length is 200 tokens. )"
                                          : R"({"error":{"message":"This model's maximum context length is 200 tok)"));
    CHECK((refused.body.find(R"("code":"context_length_exceeded")") != std::string::npos) == !ollama);
    CHECK((refused.body.find("The input length exceeds the context length.") != std::string::npos) == ollama);
  }
}

TEST_CASE("A stream of Ollama's that fails ends with the error as a line") {
  live_server live;
  raw_client client(live.port());
  client.post("/api/generate", R"({"model":"org/bytes","prompt":"x"})");
  const auto request = live.fake.next();
  request->text("ab");
  REQUIRE(client.read_head().status == 200);
  CHECK(client.read_chunk().find(R"("response":"ab")") != std::string::npos);
  request->send(error{errc::device, "it broke", {}});
  CHECK(client.read_chunk() == "{\"error\":\"it broke\"}\n");
}

TEST_CASE("A client of Ollama's that leaves has its request cancelled") {
  live_server live;
  raw_client client(live.port());
  client.post("/api/generate", R"({"model":"org/bytes","prompt":"x"})");
  const auto request = live.fake.next();
  client.close();
  CHECK(request->wait_cancelled());
}

TEST_CASE("Responses are stored, told again, continued and deleted") {
  live_server live;
  const auto port = live.port();
  const auto first = ab_answered(live, "/v1/responses", R"({"input":"x"})");
  CHECK(first.status == 200);
  const auto path = "/v1/responses/" + response_id(first.body);
  CHECK(fetch(port, "GET", path).body == first.body);
  CHECK(fetch(port, "GET", path + "/input_items").body.find(R"("text":"x")") != std::string::npos);
  raw_client client(port);
  client.post("/v1/responses", R"({"input":"y","previous_response_id":")" + response_id(first.body) + "\"}");
  const auto request = live.fake.next();
  CHECK(live.fake.served->decode(request->asked.prompt, false) == "user: x\nassistant: ab\nuser: y\nassistant:");
  request->text("c");
  request->done();
  CHECK(client.read_response().status == 200);
  CHECK(fetch(port, "DELETE", path).body ==
        R"({"id":")" + response_id(first.body) + R"(","object":"response","deleted":true})");
  CHECK(fetch(port, "DELETE", path).status == 404);
  CHECK(fetch(port, "GET", path).status == 404);
  CHECK(fetch(port, "POST", path, "{}").headers.at("allow") == "GET, HEAD, DELETE, OPTIONS");
  CHECK(fetch(port, "POST", "/v1/responses", R"({"input":"y","previous_response_id":"resp_0"})").status == 404);
}

TEST_CASE("A response belongs to the key that asked for it, and a preflight may ask to delete it") {
  server_options options;
  options.api_keys = {"one", "two"};
  options.cors_origins = {"http://page.example"};
  live_server live(options);
  const auto port = live.port();
  const auto answer = ab_answered(live, "/v1/responses", R"({"input":"x"})", "Authorization: Bearer one\r\n");
  const auto path = "/v1/responses/" + response_id(answer.body);
  CHECK(fetch(port, "GET", path, {}, "Authorization: Bearer two\r\n").status == 404);
  CHECK(fetch(port, "DELETE", path, {}, "Authorization: Bearer two\r\n").status == 404);
  CHECK(fetch(port, "GET", path).status == 401);
  CHECK(fetch(port, "GET", path, {}, "Authorization: Bearer one\r\n").status == 200);
  const auto preflight = fetch(port, "OPTIONS", path, {},
                               "Origin: http://page.example\r\nAccess-Control-Request-Method: DELETE\r\n");
  CHECK(preflight.headers.at("access-control-allow-methods") == "GET, HEAD, DELETE, OPTIONS");
}

TEST_CASE("A server that may store nothing forgets its responses") {
  server_options options;
  options.max_response_memory = 0;
  live_server live(options);
  const auto answer = ab_answered(live, "/v1/responses", R"({"input":"x"})");
  CHECK(fetch(live.port(), "GET", "/v1/responses/" + response_id(answer.body)).status == 404);
}

TEST_CASE("A streamed response ends with its last event, and says so") {
  live_server live;
  const auto stream = ab_answered(live, "/v1/responses", R"({"input":"x","stream":true})");
  CHECK(stream.headers.at("content-type") == "text/event-stream");
  CHECK(stream.body.starts_with("event: response.created\n"));
  CHECK(stream.body.find("event: response.completed\n") != std::string::npos);
  CHECK(stream.body.ends_with("\n\ndata: [DONE]\n\n"));
}

TEST_CASE("Inputs of embeddings run side by side and are answered in order") {
  live_server live;
  raw_client client(live.port());
  client.post("/v1/embeddings", R"({"input":["a","b"],"normalize":false})");
  const auto a = live.fake.next(), b = live.fake.next();
  CHECK(a->asked.embed == pooling::last);
  const auto embed = [](fake_request& request, std::vector<float> values) {
    done_event done;
    done.choices.push_back({});
    done.prompt_tokens = 2;
    done.embedding = std::move(values);
    request.send(std::move(done));
  };
  embed(*b, {2, 0, 0, 0});
  embed(*a, {1, 0, 0, 0});
  const auto answer = client.read_response();
  CHECK(answer.status == 200);
  CHECK(answer.body.find(R"("index":0,"embedding":[1,0,0,0])") != std::string::npos);
  CHECK(answer.body.find(R"("index":1,"embedding":[2,0,0,0])") != std::string::npos);
}
