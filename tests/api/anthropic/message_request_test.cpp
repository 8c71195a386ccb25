#include "api/anthropic/message_request.hpp"

#include "runtime/techniques/guides/technique.hpp"
#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A model whose prompt is the JSON of the chat's messages, behind its tools' names and its variables.
std::shared_ptr<served_model> frank_model(bool knows_late_systems = true) {
  auto model = byte_model(4000);
  model->render = [knows_late_systems](const chat_input& chat) {
    auto meter = jinja::meter::unlimited();
    std::string prompt;
    if (!chat.tools.is_none())
      for (const auto& tool : chat.tools.seq().items)
        prompt += jinja::to_json(meter, tool) + '\n';
    for (const auto& [name, value] : chat.variables.entries())
      prompt += name.str() + '=' + jinja::to_json(meter, value) + '\n';
    const auto& items = chat.messages.seq().items;
    for (std::size_t i = 1; i < items.size(); ++i)
      if (!knows_late_systems && items[i].map().find("role")->str() == "system")
        throw failure(errc::bad_request, "`messages`: System message must be at the beginning.", "messages");
    return prompt + jinja::to_json(meter, chat.messages);
  };
  return model;
}

message_request asked(const std::string& fields, std::shared_ptr<served_model> model = frank_model()) {
  return parsed(R"({"model":"org/bytes","max_tokens":50,)" + fields + '}',
                [](const field_reader& body, const auto& m) { return parse_message_request(body, *m); },
                std::move(model));
}

std::string prompt_of(const std::string& fields, std::shared_ptr<served_model> model = frank_model()) {
  return text_of(asked(fields, std::move(model)).asked.prompts.at(0).prompt);
}

const std::string hi = R"("messages":[{"role":"user","content":"hi"}])";

std::string complaint_about(const std::string& fields) {
  return fault_of([&] { asked(fields); }).message;
}

std::string complaint_about_messages(const std::string& list) { return complaint_about("\"messages\":[" + list + ']'); }

} // namespace

TEST_CASE("Anthropic's system blocks and messages become a chat's") {
  CHECK(prompt_of(R"("system":"Be kind.",)" + hi) ==
        R"([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}])");
  CHECK(prompt_of(R"("system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=1;"},
                    {"type":"text","text":"A","cache_control":{"type":"ephemeral"}},{"type":"text","text":"B"}],)" +
                  hi) == R"([{"role": "system", "content": "A\nB"}, {"role": "user", "content": "hi"}])");
  // Neighbours of one role are one message, and empty texts are nothing.
  CHECK(prompt_of(R"("messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":""},
                    {"type":"text","text":"b"}]},{"role":"assistant","content":""},{"role":"user","content":"c"}])") ==
        R"([{"role": "user", "content": "a\nb"}, {"role": "user", "content": "c"}])");
  CHECK(prompt_of(R"("messages":[{"role":"user","content":[{"type":"document","title":"T","source":
                    {"type":"text","media_type":"text/plain","data":"D"}}]}])") ==
        R"([{"role": "user", "content": "T\nD"}])");
}

TEST_CASE("Anthropic's calls, their results and reasoning become a chat's") {
  const std::string turns = R"("messages":[{"role":"user","content":"w"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},
      {"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look"},{"type":"text","text":" it up."},
      {"type":"tool_use","id":"c1","name":"f","input":{"k":[1]}},{"type":"tool_use","id":"c2","name":"g","input":{}}]},
    {"role":"user","content":[{"type":"text","text":"and?"},
      {"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"18"},{"type":"text","text":"C"}]},
      {"type":"tool_result","tool_use_id":"c2","is_error":true}]}])";
  const auto prompt = prompt_of(turns);
  CHECK(prompt ==
        R"([{"role": "user", "content": "w"}, {"role": "assistant", "content": "I look it up.", )"
        R"("reasoning_content": "Hm.", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", )"
        R"("arguments": {"k": [1]}}}, {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {}}}]}, )"
        R"({"role": "tool", "tool_call_id": "c1", "content": "18\nC"}, )"
        R"({"role": "tool", "tool_call_id": "c2", "content": "Error"}, {"role": "user", "content": "and?"}])");
}

TEST_CASE("a last message of the assistant's is continued") {
  CHECK(prompt_of(R"("messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"One, "}])") ==
        R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "One,)");
  CHECK(prompt_of(R"("messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[
                    {"type":"thinking","thinking":"Hm.","signature":""}]}])")
          .ends_with("}]"));
}

TEST_CASE("system messages stay where they are, or become users' where the template refuses that") {
  const std::string turns = R"("messages":[{"role":"system","content":"A"},{"role":"user","content":"hi"},
    {"role":"system","content":"9 left"},{"role":"assistant","content":"yes"},{"role":"user","content":"so"}])";
  CHECK(prompt_of(turns) ==
        R"([{"role": "system", "content": "A"}, {"role": "user", "content": "hi"}, )"
        R"({"role": "system", "content": "9 left"}, {"role": "assistant", "content": "yes"}, )"
        R"({"role": "user", "content": "so"}])");
  CHECK(prompt_of(turns, frank_model(false)) ==
        R"([{"role": "system", "content": "A"}, {"role": "user", "content": "hi\n9 left"}, )"
        R"({"role": "assistant", "content": "yes"}, {"role": "user", "content": "so"}])");
}

TEST_CASE("Anthropic's tools and choices become a chat's") {
  const std::string tools = R"("tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f",
    "description":"d","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}},
    {"type":"custom","name":"g","input_schema":{"type":"object"}}],)";
  auto model = frank_model();
  const auto request = asked(tools + hi, model);
  CHECK(request.notes == std::vector<std::string>{"tools that this server does not have: web_search_20250305"});
  CHECK(text_of(request.asked.prompts.at(0).prompt)
          .starts_with(R"({"type": "function", "function": {"name": "f", "description": "d", "parameters": )"
                       R"({"type": "object"}}})"
                       "\n"
                       R"({"type": "function", "function": {"name": "g")"));
  CHECK(prompt_of(tools + R"("tool_choice":{"type":"none"},)" + hi).starts_with("[{\"role\""));
  CHECK(complaint_about(tools + R"("tool_choice":{"type":"any"},)" + hi) ==
        "`tool_choice` cannot force a call: this server does not parse calls");
  CHECK(complaint_about(tools + R"("tool_choice":{"type":"tool","name":"h"},)" + hi) ==
        "`tool_choice` names `h`, which is none of the `tools`");
  CHECK(complaint_about(tools + R"("tool_choice":{"type":"some"},)" + hi) ==
        R"(`tool_choice.type` must be "auto", "any", "tool" or "none", not "some")");
  CHECK(complaint_about(R"("tools":[{"type":"bash_20250124","name":"bash"},{"name":"a b","input_schema":{}}],)" + hi)
          .starts_with("`tools[1].name` must have 1 to "));
  CHECK(complaint_about(R"("tools":[{"name":"f"}],)" + hi) == "`tools[0].input_schema` is required");
}

TEST_CASE("Anthropic's thinking and effort are variables of the template") {
  CHECK(prompt_of(R"("thinking":{"type":"enabled","budget_tokens":1024},)" + hi)
          .starts_with("enable_thinking=true\nthinking=true\n["));
  CHECK(prompt_of(R"("thinking":{"type":"disabled"},"output_config":{"effort":"max"},)" + hi)
          .starts_with("enable_thinking=false\nthinking=false\nreasoning_effort=\"high\"\n["));
  CHECK(complaint_about(R"("thinking":{"type":"on"},)" + hi) ==
        R"(`thinking.type` must be "enabled", "adaptive" or "disabled", not "on")");
  CHECK(complaint_about(R"("thinking":{"type":"enabled","budget_tokens":0},)" + hi).find("thinking.budget_tokens") !=
        std::string::npos);
}

TEST_CASE("Anthropic's sampling, its limit and a schema are those of chats") {
  const auto request = asked(
    R"("stop_sequences":["x","y"],"top_k":3,"temperature":0.5,"seed":7,"service_tier":"auto","stream":true,
       "metadata":{"user_id":"u"},"cache_control":{"type":"ephemeral"},"output_config":{"format":{"type":"json_schema",
       "schema":{"type":"object"}}},)" +
    hi);
  const auto& one = request.asked.prompts.at(0);
  REQUIRE(one.sampling.stop.size() == 2);
  CHECK(one.sampling.stop[1] == "y");
  CHECK(one.sampling.top_k == 3);
  CHECK(one.sampling.temperature == 0.5f);
  CHECK(one.sampling.max_tokens == 50);
  CHECK(bool(guides::source_of(one)));
  CHECK(request.asked.stream);
  CHECK(request.notes.empty());
  CHECK(!request.wants_more);
  CHECK(asked(R"("top_kk":3,)" + hi).notes ==
        std::vector<std::string>{"`top_kk` is not known here and has no effect; did you mean `top_k`?"});
}

TEST_CASE("max_tokens beyond the context's room is what there is room for") {
  const auto request = parsed(R"({"max_tokens":32000,)" + hi + '}',
                              [](const field_reader& body, const auto& m) { return parse_message_request(body, *m); },
                              byte_model(100));
  CHECK(request.wants_more);
  const auto& one = request.asked.prompts.at(0);
  CHECK(one.sampling.max_tokens == 100 - static_cast<int>(one.prompt.size()));
}

TEST_CASE("tokens are counted as the request has them, without max_tokens") {
  const auto count = [](const std::string& fields) {
    return parsed(
      "{" + fields + "}",
      [](const field_reader& body, const auto& m) { return count_message_request(body, *m).tokens; }, frank_model());
  };
  const auto fields = R"("system":"S","thinking":{"type":"enabled","budget_tokens":2000},"tools":[{"name":"f",
    "input_schema":{"type":"object"}}],)" +
    hi;
  CHECK(count(fields) == asked(fields).asked.prompts.at(0).prompt.size());
  CHECK(count(R"("messages":[{"role":"user","content":")" + std::string(5000, 'x') + "\"}]") > 5000);
}

TEST_CASE("what is wrong with Anthropic's requests is told in their names") {
  const auto bare = [](const std::string& body) {
    return fault_of(
             [&] { parsed(body, [](const field_reader& b, const auto& m) { return parse_message_request(b, *m); }); })
      .message;
  };
  CHECK(bare('{' + hi + '}') == "`max_tokens` is required");
  CHECK(bare(R"({"max_tokens":0,)" + hi + '}').starts_with("`max_tokens` must be"));
  CHECK(bare(R"({"max_tokens":1})") == "`messages` is required");
  CHECK(complaint_about(R"("messages":[])") == "`messages` must have at least one message");
  CHECK(complaint_about(R"("stop_sequences":7,)" + hi).starts_with("`stop_sequences` must be"));
  CHECK(complaint_about(R"("n":2,)" + hi) == "`n` is not a field of messages");
  CHECK(complaint_about_messages(R"({"role":"robot","content":"x"})") ==
        R"(`messages[0].role` must be "user", "assistant" or "system", not "robot")");
  CHECK(complaint_about_messages(R"({"role":"user","content":[{"type":"image","source":{}}]})") ==
        R"(`messages[0].content[0].type` is "image"; this model reads text only: an image needs a vision encoder, and )"
        "this server has none; rows that one has made can be given to /v1/completions as `prompt_embeds`");
  CHECK(complaint_about_messages(R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":
          [{"type":"image"}]}]})")
          .starts_with(R"(`messages[0].content[0].content[0].type` is "image"; this model reads text only)"));
  CHECK(complaint_about_messages(R"({"role":"user","content":[{"type":"tool_result"}]})") ==
        "`messages[0].content[0].tool_use_id` is required");
  CHECK(complaint_about_messages(R"({"role":"user","content":7})").starts_with("`messages[0].content` must be"));
  CHECK(complaint_about_messages(R"({"role":"user"})") == "`messages[0].content` is required");
  CHECK(complaint_about_messages(R"({"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f",
          "input":"x"}]})")
          .starts_with("`messages[0].content[0].input` must be an object"));
}
