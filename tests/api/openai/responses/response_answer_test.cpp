#include "api/openai/responses/response_answer.hpp"

#include "api/openai/responses/response_input.hpp"
#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

generation_job response_job_of(const std::string& fields, response_store& store) {
  return parsed("{\"input\":\"x\"" + fields + "}", [&](const field_reader& body, const auto& model) {
    return response_job(body, model, {store, 1}, {});
  });
}

std::string id_in(const std::string& text, std::string_view prefix) {
  const auto at = text.find(prefix);
  REQUIRE(at != text.npos);
  return text.substr(at, prefix.size() + 48);
}

std::string without_response_ids(std::string text) {
  for (const auto* prefix : {"resp_", "msg_", "rs_", "fc_"})
    text = without(std::move(text), prefix);
  for (auto at = text.find("\"completed_at\":1"); at != text.npos; at = text.find("\"completed_at\":1"))
    text.replace(at + 15, text.find(',', at) - at - 15, "X");
  return without(std::move(text), "\"created_at\":", ",");
}

const std::string repeated_part =
  R"("background":false,"frequency_penalty":0,"instructions":null,"max_output_tokens":null,"max_tool_calls":null,)"
  R"("metadata":{},"parallel_tool_calls":true,"presence_penalty":0,"previous_response_id":null,"prompt_cache_key":null,)"
  R"("reasoning":{"effort":null,"summary":null},"safety_identifier":null,"service_tier":"default","store":true,)"
  R"("temperature":1,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":1,)"
  R"("truncation":"disabled","user":null})";

std::string response_with(const std::string& status, const std::string& details, const std::string& output,
                          const std::string& used) {
  return R"({"id":"resp_X","object":"response","created_at":X,"completed_at":)" +
    std::string(status == "completed" ? "X" : "null") + R"(,"status":")" + status +
    R"(","error":null,"incomplete_details":)" + details + R"(,"model":"org/bytes","output":)" + output +
    R"(,"usage":)" + used + ',' + repeated_part;
}

const std::string used_tokens =
  R"({"input_tokens":18,"input_tokens_details":{"cached_tokens":1,)"
  R"("cache_write_tokens":17},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":21})";

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
  CHECK(job.writer->end() == "data: [DONE]\n\n");
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
  // Its open item is closed first.
  std::vector<std::string> kinds;
  for (std::size_t at = 0; (at = end.find("event: ", at)) != end.npos; ++at)
    kinds.push_back(end.substr(at + 7, end.find('\n', at) - at - 7));
  CHECK(kinds ==
        std::vector<std::string>{"response.output_text.done", "response.content_part.done", "response.output_item.done",
                                 "response.failed"});
  CHECK(end.find(R"("sequence_number":8)") != std::string::npos);
  CHECK(end.ends_with("\n\ndata: [DONE]\n\n"));
  CHECK(end.find(R"("status":"failed","error":{"code":"server_error","message":"it broke"})") != std::string::npos);
  CHECK(without_response_ids(end).find(R"("output":[)" + message_item("incomplete", "ab") + ']') != std::string::npos);
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

namespace {

/// A model that reasons and calls tools.
generation_job agent_job(const std::string& fields, response_store& store) {
  auto model = byte_model(2000);
  model->format = {find_reasoning_format("think"), find_call_format("hermes")};
  return parsed(
    R"({"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]},{"type":"mcp"}])" +
      fields + "}",
    [&](const field_reader& body, const auto& served) {
      return response_job(body, served, {store, 1}, {});
    },
    model);
}

const std::string agent_text =
  "<think>Hm.</think>\n\n<tool_call>\n{\"name\": \"n__f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

} // namespace

TEST_CASE("A call of a function in a namespace names both, also in its events, and is continued under its shown name") {
  response_store store(8, 1 << 20);
  auto job = agent_job(R"(,"stream":true,"include":["reasoning.encrypted_content"])", store);
  CHECK(job.notes.size() == 1);
  std::string all;
  for (const char c : agent_text)
    all += job.writer->take(0, said(std::string(1, c)));
  all += job.writer->take(0, ended(18, 20));
  const auto text = without(without_response_ids(all), R"("call_id":"call_)");
  CHECK(text.find(R"("item":{"type":"function_call","id":"fc_X","call_id":"call_X","name":"f","namespace":"n",)"
                  R"("arguments":"","status":"in_progress"})") != text.npos);
  CHECK(text.find(R"("item":{"type":"function_call","id":"fc_X","call_id":"call_X","name":"f","namespace":"n",)"
                  R"("arguments":"{\"a\": 1}","status":"completed"})") != text.npos);
  CHECK(text.find(R"("name":"f","arguments":"{\"a\": 1}"})") != text.npos); // of function_call_arguments.done
  CHECK(text.find(R"("content":[{"type":"reasoning_text","text":"Hm."}],"encrypted_content":")" +
                  sealed_reasoning("Hm.") + '"') != text.npos);
  CHECK(text.find(R"("output_tokens_details":{"reasoning_tokens":11})") != text.npos);
  const auto kept = store.find(1, id_in(all, "resp_"));
  REQUIRE(kept);
  CHECK(kept->messages.find(R"("function":{"name":"n__f","arguments":"{\"a\": 1}"})") != std::string::npos);
}

TEST_CASE("A call that max_output_tokens cuts is incomplete, kept, and continued as it is") {
  response_store store(8, 1 << 20);
  auto job = agent_job("", store);
  job.writer->take(0, said(agent_text.substr(0, agent_text.find("1}"))));
  job.writer->take(0, ended(18, 20, finish_reason::length));
  const auto body = job.writer->body();
  CHECK(body.find(R"("arguments":"{\"a\": ","status":"incomplete"})") != std::string::npos);
  auto next = agent_job(R"(,"previous_response_id":")" + id_in(body, "resp_") + '"', store);
  CHECK(text_of(next.prompts.at(0).prompt).starts_with("tool n__f\nuser: x\nassistant: "));
}
