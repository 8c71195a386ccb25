#include "api/openai/responses/response_request.hpp"

#include "api/openai/responses/response_input.hpp"
#include "runtime/chat/output/call_format.hpp"
#include "runtime/techniques/guides/technique.hpp"
#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

response_request responses(const std::string& fields, response_store& store,
                           std::shared_ptr<const served_model> model = byte_model()) {
  return parsed(
    "{" + fields + "}",
    [&](const field_reader& body, const auto& served) {
      return parse_response_request(body, *served, {store, 1}, {});
    },
    std::move(model));
}

response_request responses(const std::string& fields) {
  response_store store(8, 1 << 20);
  return responses(fields, store);
}

/// Of a model that calls tools.
response_request agent_response(const std::string& fields) {
  response_store store(8, 1 << 20);
  auto model = byte_model();
  model->format.calls = find_call_format("hermes");
  return responses(fields, store, model);
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
    if (seen.empty()) // what is rendered again has marks in place of names, to see what is shown
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
  CHECK(request.repeated.find(R"("max_output_tokens":7,"max_tool_calls":null,"metadata":{"a":"b"})") !=
        std::string::npos);
  CHECK(responses(R"("input":"x")").asked.prompts.at(0).sampling.max_tokens == 200 - 18);
  CHECK(!responses(R"("input":"x","store":false)").store);
}

TEST_CASE("A response goes on from an earlier one of the same owner") {
  response_store store(8, 1 << 20);
  store.keep(1, "resp_1", {"{}", "[]", R"({"role":"user","content":"q"},{"role":"assistant","content":"a"})"},
             "a client");
  store.keep(2, "resp_2", {"{}", "[]", R"({"role":"user","content":"secret"})"}, "a client");
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

TEST_CASE("Input items are listed with types, ids, statuses and lists of parts") {
  const auto listed = responses(
                        R"("input":[{"role":"user","content":"q"},{"id":"i","type":"message","role":"assistant",)"
                        R"("content":"r"},{"type":"function_call","call_id":"1","name":"f","arguments":"{"},)"
                        R"({"type":"function_call_output","call_id":"1","output":"4"}])")
                        .input;
  CHECK(
    without(without(without(listed, R"("id":"msg_)"), R"("id":"fc_)"), R"("id":"fco_)") ==
    R"([{"type":"message","id":"msg_X","status":"completed","role":"user","content":[{"type":"input_text","text":"q"}]},)"
    R"({"type":"message","id":"i","status":"completed","role":"assistant","content":[{"type":"output_text","text":"r",)"
    R"("annotations":[],"logprobs":[]}]},)"
    R"({"type":"function_call","id":"fc_X","status":"completed","call_id":"1","name":"f","arguments":"{"},)"
    R"({"type":"function_call_output","id":"fco_X","status":"completed","call_id":"1","output":"4"}])");
  CHECK(
    without(responses(R"("input":"q")").input, R"("id":"msg_)") ==
    R"([{"type":"message","id":"msg_X","status":"completed","role":"user","content":[{"type":"input_text","text":"q"}]}])");
}

TEST_CASE("Functions of a namespace are functions of their own, and tools that the server lacks are left out") {
  const auto request = agent_response(
    R"("input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"},{"type":"namespace","name":"n",)"
    R"("description":"d","tools":[{"type":"function","name":"g","strict":true},{"type":"custom","name":"h"}]},)"
    R"({"type":"mcp","server_label":"s"}],"tool_choice":{"type":"function","name":"g","namespace":"n"})");
  REQUIRE(request.asked.output);
  CHECK(request.asked.output->choice == call_choice::named);
  REQUIRE(request.asked.output->tools.size() == 1);
  CHECK(request.asked.output->tools.front().name == "n__g");
  CHECK(text_of(request.asked.prompts.at(0).prompt) == "tool f\ntool n__g\nuser: x\nassistant:");
  CHECK(request.notes == std::vector<std::string>{"tools that this server does not have: custom, mcp, web_search"});
  const auto* function = request.namespaces->find("n__g");
  REQUIRE(function);
  CHECK(function->space == "n");
  CHECK(function->name == "g");
  CHECK_FALSE(request.namespaces->find("f"));
  CHECK(
    request.repeated.find(
      R"("tools":[{"type":"function","name":"f","description":null,"parameters":null,"strict":false},)"
      R"({"type":"namespace","name":"n","description":"d","parameters":null,"strict":null,"tools":[{"type":"function","name":"g",)"
      R"("description":null,"parameters":null,"strict":true}]}])") != std::string::npos);
  CHECK(tool_namespaces::shown_name("mcp__server__", "g") == "mcp__server__g");
}

TEST_CASE("Only allowed tools can be called, and the prompt shows all") {
  const auto asked = [](const std::string& mode) {
    return agent_response(
      R"("input":"x","tools":[{"type":"function","name":"f"},{"type":"namespace","name":"n","tools":)"
      R"([{"type":"function","name":"g"}]},{"type":"function","name":"h"}],"tool_choice":{"type":"allowed_tools",)" +
      mode +
      R"("tools":[{"type":"function","name":"h"},{"type":"function","name":"g","namespace":"n"},{"type":"mcp"}]})");
  };
  for (const auto& [mode, choice] :
       {std::pair(R"("mode":"auto",)", call_choice::automatic), std::pair("", call_choice::automatic),
        std::pair(R"("mode":"required",)", call_choice::required)}) {
    const auto request = asked(mode);
    REQUIRE(request.asked.output);
    CHECK(request.asked.output->choice == choice);
    REQUIRE(request.asked.output->tools.size() == 2);
    CHECK(request.asked.output->tools[0].name == "n__g");
    CHECK(request.asked.output->tools[1].name == "h");
    CHECK(text_of(request.asked.prompts.at(0).prompt).starts_with("tool f\ntool n__g\ntool h\n"));
  }
}

TEST_CASE("What an agent's request says beside the answer's content is taken and repeated") {
  const auto request = responses(
    R"("input":"x","reasoning":{"effort":"low","summary":"detailed"},"text":{"verbosity":"low"},"max_tool_calls":3,)"
    R"("prompt_cache_key":"k","safety_identifier":"s","presence_penalty":0.5,"truncation":"auto")");
  for (const auto* part : {R"("reasoning":{"effort":"low","summary":"detailed"})",
                           R"("text":{"format":{"type":"text"},"verbosity":"low"})", R"("max_tool_calls":3)",
                           R"("prompt_cache_key":"k")", R"("safety_identifier":"s")", R"("presence_penalty":0.5)",
                           R"("frequency_penalty":0)", R"("truncation":"auto")"})
    CHECK_MESSAGE(request.repeated.find(part) != std::string::npos, part);
  CHECK(request.asked.notes ==
        std::vector<std::string>{"`text.verbosity` has no effect: the model's chat template does not name it"});
}

TEST_CASE("Instructions and what developers say first are one system message") {
  CHECK(
    prompt_of_response(R"("instructions":"i","input":[{"role":"developer","content":"d"},{"role":"system","content":)"
                       R"([{"type":"input_text","text":"s"}]},{"role":"user","content":"x"},)"
                       R"({"role":"developer","content":"e"}])") == "system: i\nd\ns\nuser: x\nsystem: e\nassistant:");
}

TEST_CASE("Reasoning that is handed back sealed reaches the template, another server's does not") {
  std::string seen;
  auto model = byte_model();
  model->render = [&seen](const chat_input& input) {
    auto unlimited = jinja::meter::unlimited();
    seen = jinja::to_json(unlimited, input.messages);
    return seen; // every text reaches the prompt
  };
  response_store store(8, 1 << 20);
  const auto replay = [&](const std::string& sealed) {
    responses(R"("input":[{"type":"reasoning","id":"r","summary":[],"encrypted_content":")" + sealed +
                R"("},{"role":"assistant","content":"a"}])",
              store, model);
    return seen;
  };
  CHECK(replay(sealed_reasoning("hm")) == R"([{"role": "assistant", "content": "a", "reasoning_content": "hm"}])");
  CHECK(replay("gAAAAABo") == R"([{"role": "assistant", "content": "a"}])");
}

TEST_CASE("With truncation auto the oldest items go until the rest fits, a turn at a time") {
  const auto turn = [](char name, int bytes) {
    return R"({"role":"user","content":")" + std::string(static_cast<std::size_t>(bytes), name) +
      R"("},{"role":"assistant","content":"a"},)";
  };
  const std::string last = R"({"role":"user","content":"z"})";
  const auto fields = [&](const std::string& older, const std::string& more) {
    return R"("instructions":"i","input":[)" + older + last + "]" + more;
  };
  const std::string automatic = R"(,"truncation":"auto")";
  const auto older = turn('p', 60) + turn('q', 60) + turn('r', 60);
  const auto overflow = fault_of([&] { responses(fields(older, "")); });
  CHECK(overflow.code == errc::bad_request);
  const std::string q(60, 'q'), r(60, 'r');
  CHECK(prompt_of_response(fields(older, automatic)) ==
        "system: i\nuser: " + q + "\nassistant: a\nuser: " + r + "\nassistant: a\nuser: z\nassistant:");
  // What the answer may take is left for it.
  CHECK(prompt_of_response(fields(older, automatic + R"(,"max_output_tokens":80)")) ==
        "system: i\nuser: " + r + "\nassistant: a\nuser: z\nassistant:");
  CHECK(prompt_of_response(fields("", automatic)) == "system: i\nuser: z\nassistant:");
  // The last turn alone is too long: its oldest steps go, an output never without its call.
  const auto step = [](const std::string& name) {
    return R"(,{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},)"
           R"({"type":"function_call_output","call_id":"1","output":")" +
      name + "\"}";
  };
  const std::string long_step(90, 's');
  CHECK(prompt_of_response(R"("input":[{"role":"user","content":")" + std::string(90, 'u') + "\"}" + step(long_step) +
                           step("t") + "]" + automatic) ==
        "assistant: \ntool: " + long_step + "\nassistant: \ntool: t\nassistant:");
  CHECK(fault_of([&] { responses(R"("input":")" + std::string(300, 'x') + '"' + automatic); }).param == "input");
  response_store store(8, 1 << 20);
  CHECK(parsed("{" + fields(older, automatic) + "}", [&](const field_reader& body, const auto& model) {
          return count_input_tokens(body, *model, {store, 1}, {}).tokens;
        }) == 10 + 3 * (7 + 60 + 13) + 18);
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
  refused(R"("input":[{"type":"function_call_output","call_id":"1","output":"4"}])", "input[0].call_id");
  refused(R"("input":[{"type":"item_reference","id":"x"}])", "input[0].type", unsupported);
  refused(x + R"("max_output_tokens":0)", "max_output_tokens");
  refused(x + R"("max_output_tokens":183)", "max_output_tokens");
  refused(x + R"("temperature":3)", "temperature");
  refused(x + R"("background":true)", "background", unsupported);
  refused(x + R"("conversation":"c")", "conversation", unsupported);
  refused(x + R"("prompt":{"id":"p"})", "prompt", unsupported);
  refused(x + R"("truncation":"newest")", "truncation");
  refused(x + R"("max_tool_calls":0)", "max_tool_calls");
  refused(x + R"("include":["file_search_call.results"])", "include", unsupported);
  refused(x + R"("top_logprobs":2)", "top_logprobs");
  refused(x + R"("n":2)", "n", unsupported);
  refused(x + R"("messages":[])", "messages", unsupported);
  refused(x + R"("response_format":{"type":"text"})", "response_format", unsupported);
  refused(x + R"("tools":[{"type":"funktion"}])", "tools[0].type", unsupported);
  refused(x + R"("tools":[{"type":"function"}])", "tools[0].name");
  refused(x + R"("tools":[{"type":"web_search"},{"type":"function","name":"a b"}])", "tools[1].name");
  refused(x + R"("tools":[{"type":"namespace","name":"n"}])", "tools[0].tools");
  refused(x +
            R"("tools":[{"type":"function","name":"f"},{"type":"namespace","name":"n","tools":[{"type":"function"}]}])",
          "tools[1].tools[0].name");
  refused(x +
            R"("tools":[{"type":"web_search"},{"type":"namespace","name":"n","tools":[{"type":"mcp"},)"
            R"({"type":"function","name":"f","parameters":3}]}])",
          "tools[1].tools[1].parameters");
  refused(x + R"("tool_choice":{"type":"web_search"})", "tool_choice.type", unsupported);
  refused(x + R"("tool_choice":{"type":"function","name":"g"})", "tool_choice");
  refused(x + R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.tools");
  refused(x +
            R"("tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"none","tools":)"
            R"([{"type":"function","name":"f"}]})",
          "tool_choice.mode");
  refused(x +
            R"("tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","tools":)"
            R"([{"type":"function","name":"g"}]})",
          "tool_choice");
  refused(x + R"("text":{"verbosity":"loud"})", "text.verbosity");
  refused(x + R"("text":{"format":{}})", "text.format.type");
  refused(x + R"("reasoning":{"summary":"long"})", "reasoning.summary");
  refused(x + R"("metadata":{"a":1})", "metadata");
  CHECK(fault_of([&] { responses(x + R"("model":"other")"); }).code == errc::not_found);
}

TEST_CASE("A call that was cut off is taken back as it is") {
  for (const auto* arguments : {"no", "[]", "7", "{", ""}) {
    CAPTURE(arguments);
    const auto request = responses(R"("input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"1",)"
                                   R"("name":"f","arguments":")" +
                                   std::string(arguments) +
                                   R"("},{"type":"function_call_output","call_id":"1","output":"o"}])");
    CHECK(request.messages.find(R"("arguments":")" + std::string(arguments) + '"') != std::string::npos);
  }
  const auto fault = fault_of(
    [] { responses(R"("input":[{"type":"function_call","call_id":"1","name":"f","arguments":{"a":1}}])"); });
  CHECK(fault.param == "input[0].arguments");
}

TEST_CASE("A schema that cannot be compiled will be named as in the body") {
  const auto made = responses(R"("input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{}}})");
  REQUIRE(guides::source_of(made.asked.prompts.front()));
  CHECK(guides::source_of(made.asked.prompts.front())->field == "text.format.schema");
}
