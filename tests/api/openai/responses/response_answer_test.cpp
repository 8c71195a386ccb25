#include "api/openai/responses/response_answer.hpp"

#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

generation_job response_job_of(const std::string& fields, response_store& store) {
  return parsed("{\"input\":\"x\"" + fields + "}",
                [&](const field_reader& body, const auto& model) { return response_job(body, model, store, 1, {}); });
}

std::string id_in(const std::string& text, std::string_view prefix) {
  const auto at = text.find(prefix);
  REQUIRE(at != text.npos);
  return text.substr(at, prefix.size() + 48);
}

std::string without_response_ids(std::string text) {
  for (const auto* prefix : {"resp_", "msg_"})
    text = without(std::move(text), prefix);
  return without(std::move(text), "\"created_at\":", ",");
}

const std::string repeated_part =
  R"("background":false,"instructions":null,"max_output_tokens":null,"metadata":{},"parallel_tool_calls":true,)"
  R"("previous_response_id":null,"reasoning":{"effort":null,"summary":null},"service_tier":"default","store":true,)"
  R"("temperature":1,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":1,)"
  R"("truncation":"disabled","user":null})";

std::string response_with(const std::string& status, const std::string& details, const std::string& output,
                          const std::string& used) {
  return R"({"id":"resp_X","object":"response","created_at":X,"status":")" + status +
    R"(","error":null,"incomplete_details":)" + details + R"(,"model":"org/bytes","output":)" + output +
    R"(,"usage":)" + used + ',' + repeated_part;
}

const std::string used_tokens = R"({"input_tokens":18,"input_tokens_details":{"cached_tokens":1},"output_tokens":3,)"
                                R"("output_tokens_details":{"reasoning_tokens":0},"total_tokens":21})";

std::string message_item(const std::string& status, const std::string& text) {
  return R"({"type":"message","id":"msg_X","status":")" + status +
    R"(","role":"assistant","content":[{"type":"output_text","text":")" + text +
    R"(","annotations":[],"logprobs":[]}]})";
}

} // namespace

TEST_CASE("A whole response has one message, and is kept") {
  response_store store(8, 1 << 20);
  auto job = response_job_of("", store);
  CHECK(!job.stream);
  CHECK(job.writer->take(0, said("ab")).empty());
  CHECK(job.writer->take(0, said("c")).empty());
  CHECK(job.writer->take(0, ended(18, 3)).empty());
  const auto body = job.writer->body();
  CHECK(without_response_ids(body) ==
        response_with("completed", "null", '[' + message_item("completed", "abc") + ']', used_tokens));
  const auto kept = store.find(1, id_in(body, "resp_"));
  REQUIRE(kept);
  CHECK(kept->body == body);
  CHECK(kept->messages == R"({"role":"user","content":"x"},{"role":"assistant","content":"abc"})");
}

TEST_CASE("A response that is cut off is incomplete, and one that must not be kept is not") {
  response_store store(8, 1 << 20);
  auto job = response_job_of(R"(,"store":false)", store);
  job.writer->take(0, said("abc"));
  job.writer->take(0, ended(18, 3, finish_reason::length));
  auto body = without_response_ids(job.writer->body());
  body.replace(body.find("\"store\":false"), 13, "\"store\":true");
  CHECK(body ==
        response_with("incomplete", R"({"reason":"max_output_tokens"})", '[' + message_item("incomplete", "abc") + ']',
                      used_tokens));
  CHECK(store.bytes() == 0);
}

TEST_CASE("A streamed response is told by numbered events") {
  response_store store(8, 1 << 20);
  auto job = response_job_of(R"(,"stream":true)", store);
  CHECK(job.stream);
  std::string all = job.writer->take(0, said("ab"));
  CHECK(job.writer->take(0, said("")).empty());
  all += job.writer->take(0, said("c"));
  all += job.writer->take(0, ended(18, 3));
  CHECK(job.writer->end().empty());
  int number = 0;
  std::string expected;
  const auto event = [&](const std::string& type, const std::string& members) {
    expected += "event: response." + type + "\ndata: {\"type\":\"response." + type +
      "\",\"sequence_number\":" + std::to_string(number++) + ',' + members + "}\n\n";
  };
  const auto begun = R"("response":)" + response_with("in_progress", "null", "[]", "null");
  const std::string part = R"("item_id":"msg_X","output_index":0,"content_index":0,)";
  const auto text_part = [](const std::string& text) {
    return R"("part":{"type":"output_text","text":")" + text + R"(","annotations":[],"logprobs":[]})";
  };
  event("created", begun);
  event("in_progress", begun);
  event("output_item.added",
        R"("output_index":0,"item":{"type":"message","id":"msg_X","status":"in_progress","role":"assistant",)"
        R"("content":[]})");
  event("content_part.added", part + text_part(""));
  event("output_text.delta", part + R"("delta":"ab","logprobs":[])");
  event("output_text.delta", part + R"("delta":"c","logprobs":[])");
  event("output_text.done", part + R"("text":"abc","logprobs":[])");
  event("content_part.done", part + text_part("abc"));
  event("output_item.done", R"("output_index":0,"item":)" + message_item("completed", "abc"));
  event("completed",
        R"("response":)" +
          response_with("completed", "null", '[' + message_item("completed", "abc") + ']', used_tokens));
  CHECK(without_response_ids(all) == expected);
  CHECK(store.find(1, id_in(all, "resp_")));
}

TEST_CASE("A stream that fails ends with response.failed") {
  response_store store(8, 1 << 20);
  auto job = response_job_of(R"(,"stream":true)", store);
  job.writer->take(0, said("ab"));
  const auto end = job.writer->fail({errc::device, "it broke", {}});
  CHECK(end.starts_with("event: response.failed\n"));
  CHECK(end.find(R"("sequence_number":5)") != std::string::npos);
  CHECK(end.find(R"("status":"failed","error":{"code":"server_error","message":"it broke"})") != std::string::npos);
  CHECK(store.bytes() == 0);
}

TEST_CASE("Log-probabilities of a response wait for their text") {
  response_store store(8, 1 << 20);
  auto job = response_job_of(R"(,"include":["message.output_text.logprobs"])", store);
  auto first = said(""), second = said("ab");
  first.logprobs.push_back({.id = 'a', .logprob = -0.5f});
  second.logprobs.push_back({.id = 'b', .logprob = -0.25f});
  job.writer->take(0, first);
  job.writer->take(0, second);
  job.writer->take(0, ended(18, 2));
  CHECK(job.writer->body().find(R"("logprobs":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]},)"
                                R"({"token":"b","logprob":-0.25,"bytes":[98],"top_logprobs":[]}])") !=
        std::string::npos);
}

TEST_CASE("A response without text has an empty message") {
  response_store store(8, 1 << 20);
  auto job = response_job_of("", store);
  job.writer->take(0, ended(18, 0));
  CHECK(without_response_ids(job.writer->body()).find('[' + message_item("completed", "") + ']') != std::string::npos);
}
