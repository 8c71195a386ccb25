#include "api/anthropic/message_answer.hpp"

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

generation_job message_job_of(const std::string& fields, bool agent = false) {
  auto model = byte_model(400);
  if (agent)
    model->format = {find_reasoning_format("think"), find_call_format("hermes")};
  return parsed(R"({"max_tokens":50,"messages":[{"role":"user","content":"x"}])" + fields + '}',
                [](const field_reader& body, const auto& m) { return message_job(body, m, {}); }, model);
}

const std::string tool = R"(,"tools":[{"name":"f","input_schema":{"type":"object"}}])";

std::string without_message_ids(std::string text) {
  for (const auto* prefix : {"\"msg_", "\"unsigned_"})
    text = without(std::move(text), prefix);
  return without(std::move(text), R"("tool_use","id":")");
}

std::string event_of(const std::string& type, const std::string& members) {
  return "event: " + type + "\ndata: {\"type\":\"" + type + '"' + (members.empty() ? "" : ",") + members + "}\n\n";
}

std::string started(std::size_t prompt) {
  return event_of("message_start",
                  R"("message":{"id":"msg_X","type":"message","role":"assistant","model":"org/bytes","content":[],)"
                  R"("stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":)" +
                    std::to_string(prompt) +
                    R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,)"
                    R"("service_tier":"standard"}})") +
    event_of("ping", "");
}

std::string ended_by(const std::string& reason, const std::string& details = {}) {
  return event_of("message_delta",
                  R"("delta":{"stop_reason":")" + reason +
                    R"(","stop_sequence":null},"usage":{"input_tokens":17,"cache_creation_input_tokens":0,)"
                    R"("cache_read_input_tokens":1,"output_tokens":3)" +
                    details + '}') +
    event_of("message_stop", "");
}

std::string block_start(int index, const std::string& block) {
  return event_of("content_block_start", "\"index\":" + std::to_string(index) + ",\"content_block\":{" + block + '}');
}
std::string block_delta(int index, const std::string& delta) {
  return event_of("content_block_delta", "\"index\":" + std::to_string(index) + ",\"delta\":{" + delta + '}');
}
std::string block_stop(int index) { return event_of("content_block_stop", "\"index\":" + std::to_string(index)); }

std::string answer_of(generation_job& job, const std::string& text, finish_reason reason = finish_reason::stop) {
  CHECK(job.writer->take(0, said(text)).empty());
  CHECK(job.writer->take(0, ended(18, 3, reason)).empty());
  return without_message_ids(job.writer->body());
}

std::string message_with(const std::string& content, const std::string& reason, const std::string& by = "null") {
  return R"({"id":"msg_X","type":"message","role":"assistant","model":"org/bytes","content":[)" + content +
    R"(],"stop_reason":")" + reason + R"(","stop_sequence":)" + by +
    R"(,"usage":{"input_tokens":17,"cache_creation_input_tokens":0,"cache_read_input_tokens":1,"output_tokens":3,)"
    R"("service_tier":"standard"}})";
}

} // namespace

TEST_CASE("A whole message has its text, why it ended, and what it took") {
  auto job = message_job_of("");
  CHECK(!job.stream);
  CHECK(answer_of(job, "a\"b") == message_with(R"({"type":"text","text":"a\"b"})", "end_turn"));
  auto cut = message_job_of("");
  CHECK(answer_of(cut, "a", finish_reason::length) == message_with(R"({"type":"text","text":"a"})", "max_tokens"));
  auto silent = message_job_of("");
  CHECK(answer_of(silent, "", finish_reason::length) == message_with("", "max_tokens"));
}

TEST_CASE("A message that the context's end cut says so") {
  auto job = parsed(R"({"max_tokens":5000,"messages":[{"role":"user","content":"x"}]})",
                    [](const field_reader& body, const auto& m) { return message_job(body, m, {}); });
  CHECK(answer_of(job, "a", finish_reason::length) ==
        message_with(R"({"type":"text","text":"a"})", "model_context_window_exceeded"));
}

TEST_CASE("A message that a stop sequence ended names it, if it is the client's") {
  for (const auto& [stop, reason, by] :
       {std::tuple("\\n", "stop_sequence", R"("\n")"), std::tuple("b", "end_turn", "null")}) {
    auto job = message_job_of(R"(,"stop_sequences":["\n"])");
    auto e = said("a");
    e.finish = finish_reason::stop;
    e.stop = stop[0] == 'b' ? "b" : "\n";
    job.writer->take(0, e);
    job.writer->take(0, ended(18, 3));
    CHECK(without_message_ids(job.writer->body()) == message_with(R"({"type":"text","text":"a"})", reason, by));
  }
}

TEST_CASE("A message has thinking and calls as blocks") {
  auto job = message_job_of(tool, true);
  const auto whole = answer_of(
    job, "<think>\nHm.\n</think>\n\nSo:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"k\": 1}}\n</tool_call>");
  CHECK(whole ==
        message_with(R"({"type":"thinking","thinking":"Hm.","signature":"unsigned_X"},{"type":"text","text":"So:"},)"
                     R"({"type":"tool_use","id":"X","name":"f","input":{"k":1}})",
                     "tool_use"));
  auto cut = message_job_of(tool, true);
  CHECK(answer_of(cut, "So:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"k\": ", finish_reason::length) ==
        message_with(R"({"type":"text","text":"So:"})", "max_tokens"));
  auto quiet = message_job_of(R"(,"thinking":{"type":"adaptive","display":"omitted"})", true);
  CHECK(answer_of(quiet, "<think>\nHm.\n</think>\n\nSo") == message_with(R"({"type":"text","text":"So"})", "end_turn"));
}

TEST_CASE("A streamed message is told by events") {
  auto job = message_job_of(R"(,"stream":true)");
  CHECK(job.stream);
  CHECK(job.writer->stream_type() == "text/event-stream");
  const auto prompt = job.prompts.at(0).prompt.size();
  CHECK(without_message_ids(job.writer->take(0, said("he"))) ==
        started(prompt) + block_start(0, R"("type":"text","text":"")") +
          block_delta(0, R"("type":"text_delta","text":"he")"));
  CHECK(job.writer->take(0, said("y")) == block_delta(0, R"("type":"text_delta","text":"y")"));
  CHECK(job.writer->take(0, ended(18, 3)) == block_stop(0));
  CHECK(job.writer->end() == ended_by("end_turn"));
}

TEST_CASE("A streamed message tells thinking, its signature, and calls piece by piece") {
  auto job = message_job_of(tool + R"(,"stream":true)", true);
  const auto prompt = job.prompts.at(0).prompt.size();
  std::string all;
  for (const auto* text : {"<think>\n", "Hm.", "\n</think>\n\n", "So:\n",
                           "<tool_call>\n{\"name\": \"f\", \"arguments\": ", "{\"k\"", ": 1}}\n</tool_call>"})
    all += job.writer->take(0, said(text));
  all += job.writer->take(0, ended(18, 3));
  CHECK(without_message_ids(all) ==
        started(prompt) + block_start(0, R"("type":"thinking","thinking":"","signature":"")") +
          block_delta(0, R"("type":"thinking_delta","thinking":"Hm.")") +
          block_delta(0, R"("type":"signature_delta","signature":"unsigned_X")") + block_stop(0) +
          block_start(1, R"("type":"text","text":"")") + block_delta(1, R"("type":"text_delta","text":"So:")") +
          block_stop(1) + block_start(2, R"("type":"tool_use","id":"X","name":"f","input":{})") +
          block_delta(2, R"("type":"input_json_delta","partial_json":"{\"k\"")") +
          block_delta(2, R"("type":"input_json_delta","partial_json":": 1}")") + block_stop(2));
  CHECK(job.writer->end() == ended_by("tool_use", R"(,"output_tokens_details":{"thinking_tokens":11})"));
}

TEST_CASE("A streamed message that says nothing begins and ends, and one that fails tells an error") {
  auto job = message_job_of(R"(,"stream":true)");
  const auto prompt = job.prompts.at(0).prompt.size();
  CHECK(without_message_ids(job.writer->take(0, ended(18, 3))) == started(prompt));
  CHECK(job.writer->end() == ended_by("end_turn"));
  CHECK(job.writer->fail({errc::device, "it \"broke\"", {}}) ==
        event_of("error", R"("error":{"type":"api_error","message":"it \"broke\""},"request_id":null)"));
}

TEST_CASE("Anthropic's errors have types by their status, and a long prompt its words") {
  CHECK(message_error(404, "no", "r1") ==
        R"({"type":"error","error":{"type":"not_found_error","message":"no"},"request_id":"r1"})");
  for (const auto& [status, type] : {std::pair(400u, "invalid_request_error"),
                                     {401u, "authentication_error"},
                                     {403u, "permission_error"},
                                     {405u, "invalid_request_error"},
                                     {413u, "request_too_large"},
                                     {429u, "rate_limit_error"},
                                     {500u, "api_error"},
                                     {503u, "overloaded_error"},
                                     {504u, "timeout_error"}})
    CHECK(message_error(status, "no", "").find(std::string("\"type\":\"") + type + '"') != std::string::npos);
  const auto fault = fault_of([] { message_job_of(R"(,"system":")" + std::string(600, 'x') + '"'); });
  CHECK(message_error(400, fault.message, "").find("\"message\":\"prompt is too long: This model's maximum") !=
        std::string::npos);
}
