#include "api/openai/chat_messages.hpp"
#include "api/server/wire/websocket_frames.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

TEST_CASE("A chat goes through the template, tools and variables included") {
  const auto prompt_of = [](std::string_view body) { return text_of(chat(body).prompts.at(0).prompt); };
  CHECK(prompt_of(R"({"messages":[{"role":"user","content":"x"}]})") == "user: x\nassistant:");
  CHECK(prompt_of(R"({"messages":[{"role":"user","content":[{"type":"text","text":"x"},
                      {"type":"text","text":"y"}]}]})") == "user: x\ny\nassistant:");
  CHECK(prompt_of(R"({"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false})") == "user: x\n");
  CHECK(prompt_of(R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":" Once "}],
                      "continue_final_message":true})") == "user: x\nassistant:  Once");
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string messages = R"({"messages":[{"role":"user","content":"x"}],)";
  CHECK(prompt_of(messages + tools + "}") == "tool f\nuser: x\nassistant:");
  CHECK(prompt_of(messages + tools + R"(,"tool_choice":"none"})") == "user: x\nassistant:");
  CHECK(prompt_of(messages + R"("chat_template_kwargs":{"thinking":true},"reasoning_effort":"low"})") ==
        "thinking\nreasoning_effort\nuser: x\nassistant:");
}

TEST_CASE("Special tokens that texts write out are text in a chat's prompt, and those of the template are tokens") {
  auto model = byte_model();
  model->specials_in = [](std::string_view text) {
    std::vector<std::string_view> specials;
    for (auto at = text.find("<s>"); at != text.npos; at = text.find("<s>", at + 1))
      specials.push_back(text.substr(at, 3));
    return specials;
  };
  model->encode_around = [](std::string_view text, bool, std::span<const std::size_t> plain_at) {
    std::vector<token_id> ids;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const bool special = text.substr(at).starts_with("<s>") && std::ranges::find(plain_at, at) == plain_at.end();
      ids.push_back(special ? bos : static_cast<unsigned char>(text[at]));
      at += special ? 2 : 0;
    }
    return ids;
  };
  model->render = [](const chat_input& chat) {
    std::string prompt;
    for (const auto& message : chat.messages.seq().items)
      prompt += message.map().find(std::string_view("content"))->str() + "<s>";
    if (const auto* documents = chat.variables.find("documents"))
      prompt += documents->seq().items.at(0).map().find(std::string_view("text"))->str();
    for (const auto& tool : chat.tools.truth() ? chat.tools.seq().items : std::vector<jinja::value>())
      prompt += tool.map().find("function")->map().find("description")->str();
    return prompt;
  };
  const auto ids = [&](const std::string& body) {
    const auto parsed = json::document::parse(body, "the body", errc::bad_request);
    auto asked = parse_generation(dialect::chat, field_reader(parsed.root()), *model).prompts.front().prompt;
    const auto tokens = parse_tokenize(field_reader(parsed.root()), *model, {}).ids;
    CHECK(tokens == asked);
    return asked;
  };
  CHECK(ids(R"({"messages":[{"role":"user","content":"a<s>"},{"role":"assistant","content":"<s>"}]})") ==
        std::vector<token_id>{'a', '<', 's', '>', bos, '<', 's', '>', bos});
  CHECK(ids(R"({"messages":[{"role":"system","content":"<s>"}],"documents":[{"text":"a<s>"}]})") ==
        std::vector<token_id>{'<', 's', '>', bos, 'a', '<', 's', '>'});
  CHECK(ids(R"({"messages":[{"role":"user","content":""}],"tools":[{"type":"function","function":{"name":"f",
               "description":"<s>"}}]})") == std::vector<token_id>{bos, '<', 's', '>'});
  CHECK(ids(R"({"messages":[{"role":"user","content":"<s>b"},{"role":"assistant","content":"c"}],
               "continue_final_message":true})") == std::vector<token_id>{'<', 's', '>', 'b', bos, 'c'});
  CHECK(ids(R"({"messages":[{"role":"user","content":"<s>"},{"role":"assistant","content":"<s>c"}],
               "continue_final_message":true})") == std::vector<token_id>{'<', 's', '>', bos, bos, 'c'});
}

TEST_CASE("Frames of errors say when another try makes sense") {
  CHECK(error_frame("a", {errc::overloaded, "busy", {}}).find(R"("retry_after":1)") != std::string::npos);
  CHECK(error_frame("a", {errc::bad_request, "wrong", {}}).find("retry_after") == std::string::npos);
}

TEST_CASE("A chat may use the rest of the context unless it says otherwise") {
  const std::string messages = R"({"messages":[{"role":"user","content":"x"}])";
  CHECK(chat(messages + "}").prompts.front().sampling.max_tokens == 200 - 18);
  CHECK(chat(messages + R"(,"max_tokens":3})").prompts.front().sampling.max_tokens == 3);
  CHECK(chat(messages + R"(,"max_tokens":3,"max_completion_tokens":4})").prompts.front().sampling.max_tokens == 4);
  CHECK(chat(messages + R"(,"max_tokens":-1,"n_predict":3})").prompts.front().sampling.max_tokens == 200 - 18);
  CHECK(chat(messages + R"(,"max_tokens":3,"max_completion_tokens":-1})").prompts.front().sampling.max_tokens == 182);
  CHECK(chat(messages + R"(,"logprobs":true,"top_logprobs":5})").prompts.front().sampling.logprobs == 5);
  CHECK(chat(messages + R"(,"logprobs":true})").prompts.front().sampling.logprobs == 0);
  CHECK(chat(messages + R"(,"logprobs":false,"top_logprobs":0})").prompts.front().sampling.logprobs == -1);
}

TEST_CASE("Tool calls of earlier turns reach the template with their arguments opened") {
  auto model = byte_model(4000);
  std::string seen;
  model->render = [&seen](const chat_input& input) {
    auto unlimited = jinja::meter::unlimited();
    seen = jinja::to_json(unlimited, input.messages);
    return seen;
  };
  const auto parsed = json::document::parse(
    R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f",
        "arguments":"{\"x\":\"y\"}"}}]},{"role":"tool","content":"42","tool_call_id":"1"}]})",
    "the body", errc::bad_request);
  parse_generation(dialect::chat, field_reader(parsed.root()), *model);
  CHECK(seen ==
        R"([{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", )"
        R"("function": {"name": "f", "arguments": {"x": "y"}}}]}, )"
        R"({"role": "tool", "content": "42", "tool_call_id": "1"}])");
}

TEST_CASE("Members that say nothing are not there for templates, and content is a text unless there are calls") {
  auto model = byte_model(4000);
  std::string seen;
  model->render = [&seen](const chat_input& input) {
    auto unlimited = jinja::meter::unlimited();
    seen = jinja::to_json(unlimited, input.messages) +
      (input.tools.is_none() ? "" : jinja::to_json(unlimited, input.tools));
    return seen;
  };
  const auto rendered = [&](const std::string& messages, const std::string& more = "") {
    const auto parsed = json::document::parse("{\"messages\":[" + messages + "]" + more + "}", "the body",
                                              errc::bad_request);
    parse_generation(dialect::chat, field_reader(parsed.root()), *model);
    return seen;
  };
  // openai-python's model_dump() of its messages
  CHECK(rendered(R"({"content":"hi","refusal":null,"role":"assistant","annotations":[],"audio":null,)"
                 R"("function_call":null,"tool_calls":null,"reasoning_content":null})") ==
        R"([{"content": "hi", "role": "assistant"}])");
  CHECK(rendered(R"({"role":"assistant","content":null,"tool_calls":[]})") ==
        R"([{"role": "assistant", "content": ""}])");
  CHECK(rendered(R"({"role":"assistant"})") == R"([{"role": "assistant", "content": ""}])");
  CHECK(rendered(R"({"role":"assistant","content":null,"refusal":"I won't."})") ==
        R"([{"role": "assistant", "content": "I won't.", "refusal": "I won't."}])");
  CHECK(
    rendered(R"({"role":"assistant","content":[{"type":"refusal","refusal":"No."},{"type":"output_text","text":"a",)"
             R"("annotations":null}]})") == R"([{"role": "assistant", "content": "No.\na"}])");
  CHECK(rendered(R"({"role":"tool","content":null,"tool_call_id":"1","name":null})") ==
        R"([{"role": "tool", "content": "", "tool_call_id": "1"}])");
  CHECK(rendered(R"({"role":"assistant","content":null,"audio":null,"tool_calls":[{"id":"1","type":"function",)"
                 R"("index":null,"custom":null,"function":{"name":"f","arguments":"{\"n\":null}"}}]})") ==
        R"([{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", )"
        R"("function": {"name": "f", "arguments": {"n": null}}}]}])");
  CHECK(rendered(R"({"role":"user","content":"x"})",
                 R"(,"tools":[{"type":"function","function":{"name":"f","description":null,"strict":null,)"
                 R"("parameters":{"type":"object","properties":{},"required":[]}}}])") ==
        R"([{"role": "user", "content": "x"}][{"type": "function", "function": {"name": "f", "parameters": )"
        R"({"type": "object", "properties": {}, "required": []}}}])");
  CHECK(rendered(R"({"role":"user","content":"x"})",
                 R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"minimum":1.10,"maximum":1e22,)"
                 R"("enum":[12345678901234567890123,1e5]}}}])") ==
        R"([{"role": "user", "content": "x"}][{"type": "function", "function": {"name": "f", "parameters": )"
        R"({"minimum": 1.1, "maximum": 1e+22, "enum": [12345678901234567890123, 100000.0]}}}])");
  CHECK(fault_of([&] { rendered(R"({"role":"user","content":null})"); }).param == "messages[0].content");
}

TEST_CASE("Numbers in arguments reach the template as Python writes them") {
  auto model = byte_model(4000);
  std::string seen;
  model->render = [&seen](const chat_input& input) {
    auto unlimited = jinja::meter::unlimited();
    const auto calls = input.messages.seq().items.front().map().find("tool_calls")->seq();
    const auto& arguments = *calls.items.front().map().find("function")->map().find("arguments");
    seen = jinja::to_json(unlimited, arguments) + ' ' + arguments.text(unlimited);
    return "f " + seen;
  };
  const auto shown = [&](const std::string& arguments) {
    const auto parsed = json::document::parse(
      R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":)" + arguments + "}}]}]}",
      "the body", errc::bad_request);
    parse_generation(dialect::chat, field_reader(parsed.root()), *model);
    return seen;
  };
  CHECK(shown(R"("{\"a\": 12345678901234567890, \"s\": \"1 \\\" 2\", \"b\": [0.10000000000000000001, -7, 1.50]}")") ==
        R"({"a": 12345678901234567890, "s": "1 \" 2", "b": [0.1, -7, 1.5]} )"
        R"({'a': 12345678901234567890, 's': '1 " 2', 'b': [0.1, -7, 1.5]})");
  CHECK(shown(R"("{\"a\": 123456789012345678901234567890, \"b\": 1e5}")")
          .starts_with(R"({"a": 123456789012345678901234567890, "b": 100000.0})"));
  CHECK(shown(R"({"a":[123456789012345678901234567890],"b":1e5,"c":-18446744073709551616})")
          .starts_with(R"({"a": [123456789012345678901234567890], "b": 100000.0, "c": -18446744073709551616})"));
  CHECK(shown(R"({"a":18446744073709551615,"b":0.1})").starts_with(R"({"a": 18446744073709551615, "b": 0.1})"));
}

TEST_CASE("A duplicate name in one object is refused anywhere in a client's JSON") {
  const auto calls = [](int count, const std::string& more) {
    std::string list;
    for (int i = 0; i < count; ++i)
      list += (i ? "," : "") + (R"({"type":"function","function":{"name":"a","arguments":"{\"k\":1}"})" + more) + '}';
    return "[" + list + "]";
  };
  // Lists of different lengths: counting in one must not write into another.
  const auto later = calls(19, R"(,"a":1,"b":[1,2,3],"c":{"d":"e"})");
  const auto many = R"({"messages":[{"role":"assistant","tool_calls":)" + calls(300, "") + R"(,"tool_calls":)" + later +
    R"(,"tool_calls":)" + later + "}]}";
  for (int i = 0; i < 20; ++i)
    CHECK(fault_of([&] { chat(many); }).param == "messages[0].tool_calls");

  const auto message = [](const std::string& call) {
    return R"({"messages":[{"role":"assistant","tool_calls":[{)" + call + "}]}]}";
  };
  const auto refused = [](const std::string& body, const std::string& param) {
    CAPTURE(body);
    const auto fault = fault_of([&] { chat(body); });
    CHECK(fault.code == errc::bad_request);
    CHECK(fault.param == param);
    CHECK(fault.message.find("is given twice") != std::string::npos);
  };
  refused(message(R"("function":{"name":"a"},"function":"x")"), "messages[0].tool_calls[0].function");
  refused(message(R"("function":null,"function":{"name":"a"})"), "messages[0].tool_calls[0].function");
  refused(R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1,"max_tokens":2})", "max_tokens");
  refused(R"({"messages":[{"role":"user","content":"x"}],"m\u0061x":1,"max":1})", "max");
  refused(R"({"messages":[{"role":"user","content":"x"}],"metadata":[1,[{"":1,"":2}]]})", "metadata[1][0].");
  refused(R"({"messages":[{"role":"user","content":"x"}],"logit_bias":{"1":1,"1":2}})", "logit_bias.1");
  const std::string name(500, 'n');
  refused(R"({"messages":[{"role":"user","content":"x"}],")" + name + R"(":1,")" + name + R"(":1})",
          "..." + name.substr(300));
  CHECK_THROWS_AS(parse_frame(R"({"type":"generate","id":"a","prompt":"x","prompt":"y"})"), bad_frame);
}

TEST_CASE("Different objects may share names, and many names in one object are fine") {
  CHECK_NOTHROW(
    chat(R"({"messages":[{"role":"user","content":"x"},{"role":"user","content":"x"}],"a":{"a":{"a":1}}})"));
  std::string body = "{\"prompt\":\"a\"";
  for (int i = 0; i < 200'000; ++i)
    body += ",\"" + std::to_string(i) + "\":0";
  CHECK_NOTHROW(completion(body + "}"));
  CHECK(fault_of([&] { completion(body + ",\"765\":0}"); }).param == "765");
}

TEST_CASE("Messages nested deeper than template values may be are refused by their field") {
  for (const int depth : {150, 195, 196, 197, 198, 199, 200, 201, 250, 1000}) {
    CAPTURE(depth);
    const auto nested = std::string(static_cast<std::size_t>(depth), '[') +
      std::string(static_cast<std::size_t>(depth), ']');
    const auto message = R"({"messages":[{"role":"user","content":"x","more":)" + nested + "}]";
    const auto ask = [&] { chat(message + "}"); };
    if (depth < 199)
      CHECK_NOTHROW(ask());
    else
      CHECK(fault_of(ask).param.starts_with("messages"));
    CHECK(fault_of([&] { chat(message + R"(,"tool_choice":"x"})"); }).code == errc::bad_request);
  }
}

TEST_CASE("The input of a chat's template is bounded in bytes and entries") {
  const std::string start = R"({"messages":[{"role":"user","content":"x"}],)",
                    hello = R"({"role":"user","content":"x"})";
  const auto refused = [](const std::string& body, const std::string& param) {
    const auto fault = fault_of([&] { chat(body); });
    CHECK(fault.param == param);
    CHECK(fault.message.find("may h") != std::string::npos); // have, hold
  };
  const auto text = [](std::size_t bytes) { return '"' + std::string(bytes, 'x') + '"'; };
  refused(start + R"("chat_template_kwargs":{"a":)" + text(most_variable_bytes) + "}}", "chat_template_kwargs");
  CHECK_NOTHROW(chat(start + R"("chat_template_kwargs":{"a":)" + text(most_variable_bytes - 100) + "}}"));
  std::string numbers;
  for (std::size_t i = 0; i < most_variable_bytes / 8; ++i)
    numbers += "1,";
  refused(start + R"("chat_template_kwargs":{"a":[)" + numbers + "1]}}", "chat_template_kwargs");
  refused(start + R"("reasoning_effort":)" + text(most_variable_bytes) + "}", "reasoning_effort");
  refused(start + R"("documents":[)" + text(most_message_bytes) + "]}", "documents");
  refused(start + R"("tools":[{"function":{"name":)" + text(most_tool_bytes) + "}}]}", "tools");
  refused(R"({"messages":[{"role":"user","content":)" + text(most_message_bytes) + "}]}", "messages");
  std::string many = hello;
  for (std::size_t i = 0; i < most_messages; ++i)
    many += ',' + hello;
  refused("{\"messages\":[" + many + "]}", "messages");
}
