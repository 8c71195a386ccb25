#include "api/openai/responses/response_request.hpp"
#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

response_request responses(const std::string& fields, response_store& store,
                           std::shared_ptr<const served_model> model = byte_model()) {
  return parsed(
    "{" + fields + "}",
    [&](const field_reader& body, const auto& served) { return parse_response_request(body, *served, store, 1, {}); },
    std::move(model));
}

response_request responses(const std::string& fields) {
  response_store store(8, 1 << 20);
  return responses(fields, store);
}

std::string prompt_of_response(const std::string& fields) {
  return text_of(responses(fields).asked.prompts.at(0).prompt);
}

} // namespace

TEST_CASE("The input of a response is a text or a list of items") {
  CHECK(prompt_of_response(R"("input":"x")") == "user: x\nassistant:");
  CHECK(prompt_of_response(R"("input":"x","instructions":"i")") == "system: i\nuser: x\nassistant:");
  CHECK(prompt_of_response(R"("input":[{"role":"developer","content":"d"},{"type":"message","role":"user","content":)"
                           R"([{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}])") ==
        "system: d\nuser: a\nb\nassistant:");
  CHECK(prompt_of_response(R"("input":[{"role":"user","content":"q"},{"type":"message","role":"assistant","id":"m",)"
                           R"("status":"completed","content":[{"type":"output_text","text":"a","annotations":[]}]},)"
                           R"({"role":"user","content":"r"}])") == "user: q\nassistant: a\nuser: r\nassistant:");
}

TEST_CASE("Calls of functions, their outputs and reasoning reach the template") {
  std::string seen;
  auto model = byte_model();
  model->render = [&seen](const chat_input& input) {
    auto unlimited = jinja::meter::unlimited();
    seen = jinja::to_json(unlimited, input.messages) + jinja::to_json(unlimited, input.tools);
    return std::string("p");
  };
  response_store store(8, 1 << 20);
  responses(R"("input":[{"role":"user","content":"q"},{"type":"reasoning","id":"r","summary":[],"content":)"
            R"([{"type":"reasoning_text","text":"hm"}]},{"type":"function_call","call_id":"1","name":"f",)"
            R"("arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"1","output":"4"}],)"
            R"("tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"}}])",
            store, model);
  CHECK(seen ==
        R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "reasoning_content": "hm", )"
        R"("tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}, )"
        R"({"role": "tool", "tool_call_id": "1", "content": "4"}])"
        R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}])");
}

TEST_CASE("Sampling parameters of responses are those of chats, and vLLM's, too") {
  const auto request = responses(
    R"("input":"x","temperature":0.5,"top_p":0.25,"max_output_tokens":7,"seed":3,"top_k":2,)"
    R"("include":["message.output_text.logprobs"],"top_logprobs":2,"stream":true,)"
    R"("user":"u","metadata":{"a":"b"},"reasoning":{"effort":null,"summary":"auto"},)"
    R"("truncation":"disabled","service_tier":"auto","stop":"z")");
  const auto& s = request.asked.prompts.at(0).sampling;
  CHECK(s.temperature == 0.5f);
  CHECK(s.top_p == 0.25f);
  CHECK(s.max_tokens == 7);
  CHECK(s.seed == 3);
  CHECK(s.top_k == 2);
  CHECK(s.logprobs == 2);
  CHECK(s.stop.size() == 1);
  CHECK(request.asked.stream);
  CHECK(request.store);
  CHECK(request.repeated.find(R"("max_output_tokens":7,"metadata":{"a":"b"})") != std::string::npos);
  CHECK(responses(R"("input":"x")").asked.prompts.at(0).sampling.max_tokens == 200 - 18);
  CHECK(!responses(R"("input":"x","store":false)").store);
}

TEST_CASE("A response goes on from an earlier one of the same owner") {
  response_store store(8, 1 << 20);
  store.keep(1, "resp_1", {"{}", "[]", R"({"role":"user","content":"q"},{"role":"assistant","content":"a"})"});
  store.keep(2, "resp_2", {"{}", "[]", R"({"role":"user","content":"secret"})"});
  const auto request = responses(R"("input":"r","previous_response_id":"resp_1","instructions":"i")", store);
  CHECK(text_of(request.asked.prompts.at(0).prompt) == "system: i\nuser: q\nassistant: a\nuser: r\nassistant:");
  CHECK(request.messages ==
        R"({"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"r"})");
  for (const auto* id : {"resp_2", "resp_3"}) {
    const auto fault = fault_of(
      [&] { responses(R"("input":"r","previous_response_id":")" + std::string(id) + '"', store); });
    CHECK(fault.code == errc::not_found);
    CHECK(fault.param == "previous_response_id");
  }
}

TEST_CASE("Input items are listed with types and ids") {
  const auto listed = responses(R"("input":[{"role":"user","content":"q"},{"id":"i","type":"message","role":"user",)"
                                R"("content":"r"}])")
                        .input;
  CHECK(without(listed, R"("id":"msg_)") ==
        R"([{"type":"message","id":"msg_X","role":"user","content":"q"},{"id":"i","type":"message","role":"user",)"
        R"("content":"r"}])");
  CHECK(without(responses(R"("input":"q")").input, R"("id":"msg_)") ==
        R"([{"type":"message","id":"msg_X","role":"user","content":[{"type":"input_text","text":"q"}]}])");
}

TEST_CASE("What is wrong with a response is told in its own names") {
  const auto refused = [](const std::string& fields, const std::string& param, errc code = errc::bad_request) {
    CAPTURE(fields);
    const auto fault = fault_of([&] { responses(fields); });
    CHECK(fault.param == param);
    CHECK(fault.code == code);
    CHECK(fault.message.find('`' + param) != std::string::npos);
  };
  const auto unsupported = errc::unsupported;
  const std::string x = R"("input":"x",)";
  refused("", "input");
  refused(R"("input":3)", "input");
  refused(R"("input":[])", "input");
  refused(R"("input":[3])", "input[0]");
  refused(R"("input":[{"content":"x"}])", "input[0].role");
  refused(R"("input":[{"role":"tool","content":"x"}])", "input[0].role");
  refused(R"("input":[{"role":"user"}])", "input[0].content");
  refused(R"("input":[{"role":"user","content":[{"type":"input_image","image_url":"u"}]}])", "input[0].content[0].type",
          unsupported);
  refused(R"("input":[{"type":"function_call","name":"f","arguments":"{}"}])", "input[0].call_id");
  refused(R"("input":[{"type":"item_reference","id":"x"}])", "input[0].type", unsupported);
  refused(x + R"("max_output_tokens":0)", "max_output_tokens");
  refused(x + R"("max_output_tokens":183)", "max_output_tokens");
  refused(x + R"("temperature":3)", "temperature");
  refused(x + R"("background":true)", "background", unsupported);
  refused(x + R"("conversation":"c")", "conversation", unsupported);
  refused(x + R"("prompt":{"id":"p"})", "prompt", unsupported);
  refused(x + R"("truncation":"auto")", "truncation", unsupported);
  refused(x + R"("include":["file_search_call.results"])", "include", unsupported);
  refused(x + R"("top_logprobs":2)", "top_logprobs");
  refused(x + R"("n":2)", "n", unsupported);
  refused(x + R"("messages":[])", "messages", unsupported);
  refused(x + R"("response_format":{"type":"text"})", "response_format", unsupported);
  refused(x + R"("tools":[{"type":"web_search"}])", "tools[0].type", unsupported);
  refused(x + R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.type", unsupported);
  refused(x + R"("text":{"verbosity":"low"})", "text.verbosity", unsupported);
  refused(x + R"("text":{"format":{}})", "text.format.type");
  refused(x + R"("reasoning":{"summary":"detailed"})", "reasoning.summary", unsupported);
  refused(x + R"("metadata":{"a":1})", "metadata");
  CHECK(fault_of([&] { responses(x + R"("model":"other")"); }).code == errc::not_found);
}

TEST_CASE("Arguments of a call that are no JSON object are refused by the item's own number") {
  response_store store(8, 1 << 20);
  const auto field = [&](const std::string& before, const std::string& arguments) {
    return fault_of([&] {
             responses(before +
                         R"("input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"1",)"
                         R"("name":"f","arguments":")" +
                         arguments + "\"}]",
                       store);
           })
      .param;
  };
  for (const auto* before : {"", R"("instructions":"i",)"})
    for (const auto* arguments : {"no", "[]", "7", "{"})
      CHECK(field(before, arguments) == "input[1].arguments");
  CHECK(field("", "") == "nothing"); // none are none
}

TEST_CASE("A schema that cannot be compiled will be named as in the body") {
  const auto made = responses(R"("input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{}}})");
  REQUIRE(made.asked.prompts.front().guide);
  CHECK(made.asked.prompts.front().guide->field == "text.format.schema");
}
