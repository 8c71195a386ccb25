#include "api/http/access.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/token_logprobs.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/utf8.hpp"
#include "tests/api/openai/parse_request.hpp"
#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

#include <limits>

using namespace troupe;
using namespace troupe::test;

namespace {

generation_request request_for(dialect speaks, int logprobs) {
  generation_request request;
  request.speaks = speaks;
  request.prompts.emplace_back();
  request.prompts.front().prompt = {97};
  request.prompts.front().sampling.logprobs = logprobs;
  return request;
}

token_event piece(std::string text, std::vector<sampled_token> tokens) {
  token_event e;
  e.text = std::move(text);
  for (const auto& token : tokens)
    e.token_ids.push_back(token.id);
  e.logprobs = std::move(tokens);
  return e;
}

sampled_token sampled(token_id id, float logprob, std::vector<token_logprob> top = {}) {
  sampled_token token;
  token.id = id;
  token.logprob = logprob;
  token.top = std::move(top);
  return token;
}

constexpr auto minus_infinity = -std::numeric_limits<float>::infinity();

} // namespace

TEST_CASE("Log-probabilities of completions count characters, not bytes") {
  response_writer writer(request_for(dialect::completions, 1), byte_model());
  writer.add(0, piece("\xc3\xa9", {sampled(0xc3, -1, {{0xc3, -1}}), sampled(0xa9, -2, {{0xc3, -1.5f}})}));
  auto last = piece("a", {sampled('a', minus_infinity)});
  last.finish = finish_reason::length;
  writer.add(0, last);
  const auto body = writer.body();
  const auto start = body.find("\"logprobs\":");
  CHECK(body.substr(start, body.find(",\"finish_reason\"") - start) ==
        R"("logprobs":{"tokens":["bytes:\\xc3","bytes:\\xa9","a"],"token_logprobs":[-1,-2,-9999.0],)"
        R"("top_logprobs":[{"bytes:\\xc3":-1},{"bytes:\\xc3":-1.5,"bytes:\\xa9":-2},{"a":-9999.0}],)"
        R"("text_offset":[0,1,1]})");
}

TEST_CASE("Special tokens do not count in text offsets") {
  response_writer writer(request_for(dialect::completions, 0), byte_model());
  writer.add(0, piece("ab", {sampled('a', -1), sampled(bos, -1), sampled('b', -1)}));
  CHECK(writer.body().find(R"("text_offset":[0,1,1])") != std::string::npos);
}

TEST_CASE("Log-probabilities of chats list bytes and alternatives") {
  response_writer writer(request_for(dialect::chat, 2), byte_model());
  writer.add(0, piece("A", {sampled('A', -0.25f, {{'A', -0.25f}, {0xff, -3}})}));
  const auto body = writer.body();
  CHECK(body.find(R"("message":{"role":"assistant","content":"A","refusal":null},"logprobs":{"content":[{"token":"A",)"
                  R"("logprob":-0.25,"bytes":[65],"top_logprobs":[{"token":"A","logprob":-0.25,"bytes":[65]},)"
                  "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-3,\"bytes\":[255]}]}],\"refusal\":null}") !=
        std::string::npos);
}

TEST_CASE("A chat returns token ids where vLLM's clients look for them") {
  auto request = request_for(dialect::chat, -1);
  request.return_token_ids = true;
  response_writer whole(request, byte_model());
  auto e = piece("A", {});
  e.token_ids = {65};
  e.finish = finish_reason::stop;
  e.stop = "\n";
  whole.add(0, e);
  const auto body = whole.body();
  CHECK(body.find(R"("finish_reason":"stop","stop_reason":"\n","token_ids":[65]}])") != std::string::npos);
  CHECK(body.ends_with(R"("prompt_token_ids":[97]})"));
  request.stream = true;
  response_writer streamed(request, byte_model());
  CHECK(streamed.chunk(0, e).ends_with("\"token_ids\":[65]}],\"prompt_token_ids\":[97]}\n\n"));
  CHECK(streamed.chunk(0, e).find("prompt_token_ids") == std::string::npos);
}

TEST_CASE("A sequence without events still has a choice and a finish reason") {
  auto request = request_for(dialect::chat, -1);
  request.prompts.front().sampling.n = 2;
  response_writer writer(request, byte_model());
  done_event done;
  done.choices = {{0, finish_reason::length, 0}, {1, finish_reason::stop, 0}};
  writer.add(0, done);
  const auto body = writer.body();
  CHECK(body.find(R"({"index":0,"message":{"role":"assistant","content":"","refusal":null},"logprobs":null,)"
                  R"("finish_reason":"length")") != std::string::npos);
  CHECK(body.find("{\"index\":1,") != std::string::npos);
}

TEST_CASE("Every error has its status and OpenAI's body") {
  const std::pair<errc, unsigned> statuses[] = {
    {errc::bad_request, 400},   {errc::unsupported, 400}, {errc::not_found, 404}, {errc::unauthorized, 401},
    {errc::too_large, 413},     {errc::overloaded, 429},  {errc::timeout, 504},   {errc::unavailable, 503},
    {errc::out_of_memory, 503}, {errc::device, 500},      {errc::internal, 500},  {errc::bad_file, 500},
    {errc::cancelled, 499},     {errc::poisoned, 500},
  };
  for (const auto& [code, status] : statuses)
    CHECK(status_of(code) == status);
  CHECK(error_body({errc::bad_request, "bad \"\xff\"", "n"}) ==
        "{\"error\":{\"message\":\"bad \\\"\xef\xbf\xbd\\\"\",\"type\":\"invalid_request_error\",\"param\":\"n\","
        "\"code\":\"invalid_value\"}}");
  CHECK(error_body({errc::poisoned, "it failed", {}}) ==
        R"({"error":{"message":"it failed","type":"server_error","param":null,"code":"poisoned"}})");
}

TEST_CASE("Errors that clients act on have OpenAI's codes") {
  const auto long_text = std::string(300, 'x');
  const auto code = [](const std::string& body, dialect speaks = dialect::completions) {
    return std::string(code_of(fault_of([&] { parse(speaks, body); })));
  };
  CHECK(code(R"({"prompt":")" + long_text + "\"}") == "context_length_exceeded");
  CHECK(code(R"({"prompt":"a","max_tokens":200})") == "context_length_exceeded");
  CHECK(code(R"({"messages":[{"role":"user","content":")" + long_text + "\"}]}", dialect::chat) ==
        "context_length_exceeded");
  CHECK(code(R"({"prompt":"a","guidance_scale":2,"negative_prompt":")" + long_text + "\"}") ==
        "context_length_exceeded");
  CHECK(code(R"({"prompt":"a","model":"other"})") == "model_not_found");
  CHECK(code("{}") == "missing_required_parameter");
  CHECK(code(R"({"prompt":"a","logits_processors":["b"]})") == "unsupported_parameter");
  CHECK(code(R"({"prompt":"a","temperature":"hot"})") == "invalid_value");
  CHECK(code_of({errc::overloaded, "full", {}}) == "rate_limit_exceeded");
  CHECK(code_of({errc::unauthorized, "key", {}}) == "invalid_api_key");
}

TEST_CASE("Chunks of a stream have the usage so far if asked for") {
  auto request = request_for(dialect::completions, -1);
  request.stream = request.include_usage = request.running_usage = true;
  response_writer writer(request, byte_model());
  CHECK(writer.chunk(0, piece("ab", {sampled('a', 0), sampled('b', 0)}))
          .find(R"("usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}})") != std::string::npos);
  CHECK(writer.chunk(0, piece("c", {sampled('c', 0)}))
          .find(R"("usage":{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4}})") != std::string::npos);
  const auto asked = [](const std::string& options) {
    return completion(R"({"prompt":"a","stream":true,"stream_options":)" + options + "}").running_usage;
  };
  CHECK(asked(R"({"include_usage":true,"continuous_usage_stats":true})"));
  CHECK_FALSE(asked(R"({"continuous_usage_stats":true})"));
  CHECK_FALSE(asked(R"({"include_usage":true})"));
}

TEST_CASE("Invalid UTF-8 is replaced part by part") {
  CHECK(to_utf8("a\xc3\xa9z") == "a\xc3\xa9z");
  const std::string r = "\xef\xbf\xbd";
  CHECK(to_utf8("\xff") == r);
  CHECK(to_utf8("a\xc3") == "a" + r);
  CHECK(to_utf8("\xe2\x82z") == r + "z");
  CHECK(to_utf8("\xf0\x9f\x98") == r);
  CHECK(to_utf8("\xed\xa0\x80") == r + r + r); // a surrogate
  CHECK(to_utf8("\xc0\xaf") == r + r);         // overlong
  CHECK(to_utf8("\xf4\x90\x80\x80") == r + r + r + r);
  CHECK(count_characters("a\xc3\xa9\xf0\x9f\x98\x80") == 3);
}

TEST_CASE("JSON strings are escaped, numbers finite") {
  CHECK(json_text("a\"\\\n\x01/") == "\"a\\\"\\\\\\n\\u0001/\"");
  CHECK(json_text(std::string_view("\0", 1)) == "\"\\u0000\"");
  CHECK(json_logprob(-0.5f) == "-0.5");
  CHECK(json_logprob(minus_infinity) == "-9999.0");
  CHECK(json_number(std::numeric_limits<double>::quiet_NaN()) == "0");
  CHECK(json_ids(std::vector<token_id>{}) == "[]");
}

TEST_CASE("Keys and origins are compared as a whole") {
  CHECK(same_in_constant_time("abc", "abc"));
  CHECK_FALSE(same_in_constant_time("abc", "abd"));
  CHECK_FALSE(same_in_constant_time("abc", "ab"));
  CHECK_FALSE(same_in_constant_time("abab", "ab"));
  CHECK_FALSE(same_in_constant_time("", "a"));
  CHECK_FALSE(same_in_constant_time("a", ""));
  CHECK(allowed_origin({"http://a"}, "HTTP://A") == "HTTP://A");
  CHECK_FALSE(allowed_origin({"http://a"}, "http://a.evil"));
  CHECK_FALSE(allowed_origin({}, "http://a"));
  CHECK(is_same_origin("http://h:1", "h:1"));
  CHECK_FALSE(is_same_origin("http://h:1", "h:2"));
  CHECK_FALSE(is_same_origin("null", ""));
}
