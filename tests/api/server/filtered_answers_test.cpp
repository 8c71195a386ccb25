// Answers that the policy's filter ends: no API tells the text that would have been complete, and each says why it ends.
#include "api/anthropic/message_answer.hpp"
#include "api/ollama/ollama_answer.hpp"
#include "api/openai/openai_answer.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/responses/response_answer.hpp"
#include "api/server/wire/websocket_frames.hpp"
#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

std::shared_ptr<served_model> calling_model() {
  auto model = byte_model(1000);
  model->format = {find_reasoning_format("think"), find_call_format("hermes")};
  return model;
}

output_filter filter_of_banned(int* tells = nullptr, bool json = false) {
  auto banned = std::make_shared<const banned_texts>(std::vector<std::string>{"banned"});
  return output_filter(std::move(banned), json, [tells] {
    if (tells)
      ++*tells;
  });
}

const std::string hermes_call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
const std::vector<std::string> joined_pieces{"ban", hermes_call, "ne", "d, and", " more"};
const std::string escaped_call = R"(<tool_call>
{"name": "f", "arguments": {"a": "bann\u0065\u0064"}}
</tool_call>)";
const std::string one_function = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";

/// All that the writer says, with what the engine says once it has been cancelled, or was not.
std::string answer_of(generation_job job, const std::vector<std::string>& pieces, bool cancelled, bool json = false) {
  int tells = 0;
  job.writer->withhold(filter_of_banned(&tells, json));
  std::string result;
  std::uint32_t tokens = 0;
  for (const auto& piece : pieces) {
    if (cancelled && job.writer->is_filtered(0))
      break;
    const auto event = said(piece);
    tokens += static_cast<std::uint32_t>(event.token_ids.size());
    result += job.writer->take(0, event);
  }
  CHECK(job.writer->is_filtered(0));
  auto last = said("");
  last.finish = cancelled ? finish_reason::cancelled : finish_reason::stop;
  result += job.writer->take(0, last);
  result += job.writer->take(0, ended(18, tokens, *last.finish));
  CHECK(tells == 1);
  return result + (job.stream ? job.writer->end() : job.writer->body());
}

template <class Make>
std::string filtered_answer(Make make, std::string_view body, const std::vector<std::string>& pieces,
                            bool json = false) {
  const auto one = [&](bool cancelled) {
    auto text = answer_of(parsed(body, make, calling_model()), pieces, cancelled, json);
    for (const auto* random : {"\"msg_", "\"resp_", "\"fc_", "\"rs_", "\"chatcmpl-", "\"cmpl-", "\"call_",
                               "\"unsigned_", R"("created_at":")", R"("tool_use","id":")"})
      text = without(std::move(text), random);
    for (const auto* time : {"\"created\":", "\"created_at\":1"})
      text = without(std::move(text), time, ",");
    return text;
  };
  const auto whole = one(false);
  CHECK(one(true) == whole); // whenever it was stopped
  return whole;
}

std::string chat_answer(const std::string& fields, const std::vector<std::string>& pieces, bool json = false) {
  return filtered_answer(
    [](const field_reader& body, auto model) { return openai_job(dialect::chat, body, std::move(model), {}); },
    R"({"messages":[{"role":"user","content":"x"}])" + fields + "}", pieces, json);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t result = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1))
    ++result;
  return result;
}

} // namespace

TEST_CASE("a chat's choice ends ahead of a banned text with content_filter, whole and streamed") {
  const auto whole = chat_answer(one_function, joined_pieces);
  CHECK(has(whole, R"("content":"banne")"));
  CHECK(has(whole, R"("finish_reason":"content_filter")"));
  CHECK(has(whole, R"("tool_calls":[)"));
  const auto tokens = 3 + hermes_call.size() + 2 + 6; // up to the piece in which it ended
  CHECK(has(whole, R"("completion_tokens":)" + std::to_string(tokens)));
  const auto stream = chat_answer(one_function + R"(,"stream":true,"stream_options":{"include_usage":true})",
                                  joined_pieces);
  CHECK(has(stream, R"({"content":"ne"})"));
  CHECK_FALSE(has(stream, "d, and"));
  CHECK(count_of(stream, R"("finish_reason":"content_filter")") == 1);
  CHECK(has(stream, R"("completion_tokens":)" + std::to_string(tokens)));
  CHECK(stream.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("arguments whose readers would have the text end there, whatever their spelling") {
  const auto whole = chat_answer(one_function, {escaped_call, "more"});
  CHECK(has(whole, R"({\"a\": \"bann\\u0065\\u006")"));
  CHECK_FALSE(has(whole, R"(u0064)"));
  CHECK(has(whole, R"("finish_reason":"content_filter")"));
  CHECK(has(chat_answer("", {R"({"a":"b)", R"(\u0061nned"})"}, true), R"("finish_reason":"content_filter")"));
}

TEST_CASE("token ids and log-probabilities end with the text") {
  const auto ids = chat_answer(R"(,"return_token_ids":true)", {"ban", "ned", "x"});
  CHECK(has(ids, R"("token_ids":[98,97,110])"));
  CHECK(has(ids, R"("content":"banne")"));
}

TEST_CASE("of several choices each ends for itself, and the request is stopped once all have ended") {
  const auto request = chat(R"({"messages":[{"role":"user","content":"x"}],"n":2})");
  response_writer writer(request, byte_model());
  writer.withhold(filter_of_banned());
  const auto say = [&](std::uint32_t index, const std::string& text, std::optional<finish_reason> finish = {}) {
    auto e = said(text);
    e.index = index;
    e.finish = finish;
    writer.add(0, e);
  };
  say(0, "banned");
  CHECK_FALSE(writer.is_filtered(0));
  say(0, "more");
  say(1, "fine");
  say(1, "", finish_reason::stop);
  CHECK(writer.is_filtered(0));
  done_event done;
  done.choices = {{0, finish_reason::cancelled, 10}, {1, finish_reason::stop, 4}};
  done.prompt_tokens = 18, done.completion_tokens = 14;
  writer.add(0, done);
  const auto body = writer.body();
  CHECK(has(body, R"("content":"banne","refusal":null},"logprobs":null,"finish_reason":"content_filter")"));
  CHECK(has(body, R"("content":"fine","refusal":null},"logprobs":null,"finish_reason":"stop")"));
  CHECK(has(body, R"("completion_tokens":10,)"));
}

TEST_CASE("a plain completion is filtered as it is told, too") {
  const auto body = filtered_answer(
    [](const field_reader& b, auto model) { return openai_job(dialect::completions, b, std::move(model), {}); },
    R"({"prompt":"x","logprobs":0})", {"ban", "ned"});
  CHECK(has(body, R"("text":"banne")"));
  CHECK(has(body, R"("finish_reason":"content_filter")"));
}

TEST_CASE("Anthropic's messages end with the reason refusal, without calls that were cut") {
  const auto make = [](const field_reader& body, const auto& model) { return message_job(body, model, {}); };
  const std::string asked = R"({"max_tokens":500,"messages":[{"role":"user","content":"x"}],)"
                            R"("tools":[{"name":"f","input_schema":{"type":"object"}}])";
  const auto whole = filtered_answer(make, asked + "}", joined_pieces);
  CHECK(has(whole, R"({"type":"text","text":"ban"})"));
  CHECK(has(whole, R"({"type":"text","text":"ne"})"));
  CHECK(has(whole, R"("input":{})"));
  CHECK(has(whole, R"("stop_reason":"refusal","stop_sequence":null)"));
  const auto stream = filtered_answer(make, asked + R"(,"stream":true})", joined_pieces);
  CHECK(count_of(stream, "content_block_start\n") == 3);
  CHECK(count_of(stream, "content_block_stop\n") == 3);
  CHECK_FALSE(has(stream, "d, and"));
  CHECK(has(stream, R"("stop_reason":"refusal")"));
  const auto cut = filtered_answer(make, asked + "}", {escaped_call});
  CHECK_FALSE(has(cut, "tool_use"));
  CHECK(has(cut, R"("stop_reason":"refusal")"));
}

TEST_CASE("Responses are incomplete because of the filter, and what is kept of them is what was told") {
  response_store store(64, 1 << 20);
  const auto make = [&](const field_reader& body, const auto& model) {
    return response_job(body, model, {store, 1}, {});
  };
  const std::string asked = R"({"input":"x","tools":[{"type":"function","name":"f","parameters":{}}])";
  const auto whole = filtered_answer(make, asked + "}", joined_pieces);
  CHECK(has(whole, R"("status":"incomplete")"));
  CHECK(has(whole, R"("incomplete_details":{"reason":"content_filter"})"));
  CHECK(has(whole, R"("text":"ne")"));
  const auto stream = filtered_answer(make, asked + R"(,"stream":true})", joined_pieces);
  CHECK(has(stream, "event: response.incomplete"));
  CHECK(has(stream, R"("incomplete_details":{"reason":"content_filter"})"));
  CHECK_FALSE(has(stream, "d, and"));
}

TEST_CASE("Ollama's answers end with content_filter, and calls that were cut are not told") {
  const auto make = [](const field_reader& body, const auto& model) {
    return ollama_job(ollama_call::chat, body, model, {});
  };
  const std::string asked = R"({"model":"org/bytes","messages":[{"role":"user","content":"x"}])" + one_function;
  const auto whole = filtered_answer(make, asked + R"(,"stream":false})", joined_pieces);
  CHECK(has(whole, R"("content":"banne")"));
  CHECK(has(whole, R"("done_reason":"content_filter")"));
  CHECK(has(whole, R"("tool_calls":[{"function":{"name":"f","arguments":{}}}])"));
  const auto stream = filtered_answer(make, asked + "}", joined_pieces);
  CHECK_FALSE(has(stream, "d, and"));
  CHECK(has(stream, R"("done_reason":"content_filter")"));
  const auto cut = filtered_answer(make, asked + R"(,"stream":false})", {escaped_call, "x"});
  CHECK_FALSE(has(cut, "tool_calls"));
  CHECK_FALSE(has(cut, "bann"));
}

TEST_CASE("arguments that Ollama tells as content are content to the filter") {
  const auto asked = parsed(
    R"({"model":"org/bytes","stream":false,"messages":[{"role":"user","content":"x"}])" + one_function + "}",
    [](const field_reader& body, const auto& model) { return ollama_job(ollama_call::chat, body, model, {}); },
    calling_model());
  asked.writer->withhold(output_filter(std::make_shared<const banned_texts>(std::vector<std::string>{"so{\"a"})));
  asked.writer->take(0, said("so<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "));
  asked.writer->take(0, ended(18, 3, finish_reason::length));
  const auto body = asked.writer->body();
  CHECK(has(body, R"("content":"so{\"")"));
  CHECK(has(body, R"("done_reason":"content_filter")"));
}

TEST_CASE("a WebSocket's choices end with content_filter, and with the tokens that were told") {
  done_event done;
  done.choices.push_back({0, finish_reason::cancelled, 9});
  done.completion_tokens = 9;
  const auto frame = done_frame("a", done, false, {{.calls = 1, .filtered = true, .tokens = 5}});
  CHECK(has(frame, R"("choices":[{"index":0,"finish_reason":"content_filter"}])"));
  CHECK(has(frame, R"("completion_tokens":5)"));
}
