#include "api/ollama/ollama_request.hpp"
#include "runtime/techniques/guides/technique.hpp"
#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string ollama_model = R"({"model":"org/bytes")";

ollama_request ollama(ollama_call call, const std::string& fields,
                      std::shared_ptr<const served_model> model = byte_model()) {
  return parsed(
    ollama_model + fields + '}',
    [&](const field_reader& body, const auto& served) { return parse_ollama(call, body, *served); }, std::move(model));
}

ollama_request generate(const std::string& fields) { return ollama(ollama_call::generate, fields); }
ollama_request chat_with(const std::string& fields) { return ollama(ollama_call::chat, fields); }

generation only(const ollama_request& request) {
  REQUIRE(request.asked.prompts.size() == 1);
  return request.asked.prompts.front();
}

error ollama_fault(ollama_call call, const std::string& fields) {
  return fault_of([&] { ollama(call, fields); });
}

} // namespace

TEST_CASE("Ollama's prompt goes through the chat template, or as it is") {
  CHECK(text_of(only(generate(R"(,"prompt":"x")")).prompt) == "user: x\nassistant:");
  CHECK(text_of(only(generate(R"(,"prompt":"x","system":"s")")).prompt) == "system: s\nuser: x\nassistant:");
  CHECK(text_of(only(generate(R"(,"prompt":"x","raw":true)")).prompt) == "<s>x");
  auto plain = byte_model();
  plain->render = nullptr;
  CHECK(text_of(only(ollama(ollama_call::generate, R"(,"prompt":"x")", plain)).prompt) == "<s>x");
  CHECK(fault_of([&] { ollama(ollama_call::generate, R"(,"prompt":"x","system":"s")", plain); }).param == "system");
}

TEST_CASE("Ollama streams unless it is told not to, and an empty prompt asks for nothing") {
  CHECK(generate(R"(,"prompt":"x")").stream);
  CHECK(!generate(R"(,"prompt":"x","stream":false)").stream);
  CHECK(generate("").asked.prompts.empty());
  CHECK(generate(R"(,"prompt":"","keep_alive":"5m")").asked.prompts.empty());
  CHECK(chat_with(R"(,"messages":[],"keep_alive":0)").asked.prompts.empty());
  CHECK(generate(R"(,"prompt":"","options":{"nothing":1})").notes.size() == 1);
}

TEST_CASE("A model's name may have Ollama's tag") {
  const auto name_of = [](const std::string& body) {
    return parsed(body, [](const field_reader& b, const auto& model) { return ollama_model_name(b, *model); });
  };
  CHECK(name_of(R"({"model":"org/bytes:latest"})") == "org/bytes:latest");
  CHECK(name_of(R"({"name":"org/bytes"})") == "org/bytes");
  CHECK(fault_of([&] { name_of(R"({"model":"other"})"); }).code == errc::not_found);
  CHECK(fault_of([&] { name_of("{}"); }).param == "model");
}

TEST_CASE("Ollama's options are sampling parameters, within the context") {
  const auto one = only(
    generate(R"(,"prompt":"x","options":{"temperature":0.5,"top_k":3,"top_p":0.25,"min_p":0.125,"seed":7,)"
             R"("repeat_penalty":1.5,"presence_penalty":1,"frequency_penalty":-1,"stop":["a","b"],"num_predict":9,)"
             R"("num_ctx":128,"num_gpu":1,"repeat_last_n":-1,"penalize_newline":true,"tfs_z":1,"mirostat":0})"));
  const auto& s = one.sampling;
  CHECK(s.temperature == 0.5f);
  CHECK(s.top_k == 3);
  CHECK(s.top_p == 0.25f);
  CHECK(s.min_p == 0.125f);
  CHECK(s.seed == 7);
  CHECK(s.repetition_penalty == 1.5f);
  CHECK(s.presence_penalty == 1);
  CHECK(s.frequency_penalty == -1);
  CHECK(s.stop.size() == 2);
  CHECK(s.max_tokens == 9);
  const int room = 200 - 18;
  CHECK(only(generate(R"(,"prompt":"x")")).sampling.max_tokens == room);
  for (const auto* all : {"-1", "-2", "100000"})
    CHECK(only(generate(std::string(R"(,"prompt":"x","options":{"num_predict":)") + all + "}")).sampling.max_tokens ==
          room);
  CHECK(only(generate(R"(,"prompt":"x","raw":true)")).sampling.max_tokens == 198);
}

TEST_CASE("Ollama's requests that name no sampling get the model's, or where it names none, what is usual there") {
  const auto told = [](const std::string& options, const std::shared_ptr<const served_model>& model) {
    const auto fields = R"(,"prompt":"x","options":{)" + options + "}";
    return told_sampling(only(ollama(ollama_call::generate, fields, model)).sampling);
  };
  const auto silent = byte_model();
  CHECK(told("", silent) == "temperature 0.8, top_k 40, top_p 0.95, min_p 0.05");
  CHECK(told(R"("temperature":0.5,"top_k":0)", silent) == "temperature 0.5, top_p 0.95, min_p 0.05");
  const auto naming = byte_model();
  naming->defaults.sampling.temperature = 0.6f;
  naming->defaults.sampling_source = "generation_config.json";
  CHECK(told("", naming) == "temperature 0.6");
}

TEST_CASE("A conversation of Ollama's goes on from its tokens") {
  const auto one = only(generate(R"(,"prompt":"x","context":[104,105])"));
  CHECK(text_of(one.prompt) == "hiuser: x\nassistant:");
  CHECK(one.sampling.max_tokens == 200 - 20);
  CHECK(generate(R"(,"prompt":"x")").tells_context);
  CHECK(!generate(R"(,"prompt":"x","raw":true)").tells_context);
  std::string ids = "[1";
  for (int i = 0; i < 190; ++i)
    ids += ",1";
  CHECK(ollama_fault(ollama_call::generate, R"(,"prompt":"x","context":)" + ids + "]").param == "prompt");
  CHECK(ollama_fault(ollama_call::generate, R"(,"prompt":"x","context":[257])").param == "context");
}

TEST_CASE("Ollama's chats have thinking, names of tools and arguments as objects") {
  std::string seen;
  auto model = byte_model(4000);
  model->render = [&seen](const chat_input& input) {
    auto unlimited = jinja::meter::unlimited();
    seen = jinja::to_json(unlimited, input.messages);
    for (const auto& [name, value] : input.variables.entries())
      seen += ' ' + name.str();
    return seen;
  };
  ollama(ollama_call::chat,
         R"(,"think":"low","messages":[{"role":"user","content":"x","images":[]},{"role":"assistant","content":"",)"
         R"("thinking":"t","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},)"
         R"({"role":"tool","content":"4","tool_name":"f"}])",
         model);
  CHECK(seen ==
        R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "reasoning_content": "t", )"
        R"("tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, )"
        R"({"role": "tool", "content": "4", "name": "f"}] enable_thinking thinking reasoning_effort)");
}

TEST_CASE("Ollama's options that have no effect are ignored with a note, as Ollama does") {
  const auto note = [](const std::string& options) {
    const auto request = generate(R"(,"prompt":"x","options":{)" + options + "}");
    CHECK(request.asked.prompts.size() == 1);
    return request.notes.empty() ? std::string() : request.notes.front();
  };
  CHECK(note(R"("temperature":0,"num_predict":3,"num_gpu":1)").empty());
  CHECK(note(R"("numctx":1)") == "`options.numctx` is not known here and has no effect; did you mean `num_ctx`?");
  for (const auto* name : {"max_tokens", "logit_bias", "reasoning_effort"})
    CHECK(note('"' + std::string(name) + "\":1").starts_with("`options." + std::string(name) + "` is not known here"));
  CHECK(note(R"("num_ctx":9114)") == "`options.num_ctx` is 9114; the context of this server is 200");
  CHECK(note(R"("num_ctx":200)").empty());
  CHECK(note(R"("tfs_z":0.5)") == "`options.tfs_z` is not supported");
  CHECK(note(R"("mirostat":1)") == "`options.mirostat` 1 is not supported: 2 is");
  CHECK(note(R"("penalize_newline":false)").starts_with("`options.penalize_newline` is not supported"));
  CHECK(note(R"("mirostat":null,"tfs_z":null)").empty());
  CHECK(generate(R"(,"prompt":"x","temprature":1,"truncate":true,"shift":true)").notes ==
        std::vector<std::string>{"`temprature` is not known here and has no effect"});

  const auto sampling = [](const std::string& options) {
    return only(generate(R"(,"prompt":"x","options":{)" + options + "}")).sampling;
  };
  CHECK(sampling(R"("repeat_penalty":1.25,"repeat_last_n":64)").repetition_penalty_range == 64);
  CHECK(sampling(R"("repeat_penalty":1.25,"repeat_last_n":-1)").repetition_penalty_range == 0);
  CHECK(sampling(R"("repeat_penalty":1.25,"repeat_last_n":0)").repetition_penalty == 1);
  CHECK(sampling(R"("num_predict":5.0,"top_k":40.0,"seed":-1.0)").top_k == 40);
  CHECK(sampling(R"("num_predict":5.0)").max_tokens == 5);
}

TEST_CASE("A message of Ollama's without content is an empty one") {
  CHECK(text_of(only(chat_with(R"(,"messages":[{"role":"user"}])")).prompt) == "user: \nassistant:");
  CHECK(text_of(only(chat_with(R"(,"messages":[{"role":"user","content":null,"images":null,"thinking":null,)"
                               R"("tool_calls":null,"tool_name":null}])"))
                  .prompt) == "user: \nassistant:");
}

TEST_CASE("A prompt of Ollama's that does not fit is told as clients know it") {
  const auto fault = ollama_fault(ollama_call::generate, R"(,"prompt":")" + std::string(300, 'x') + '"');
  CHECK(fault.message.starts_with("This model's maximum context length is 200 tokens"));
  CHECK(fault.param == "prompt");
}

TEST_CASE("What Ollama's requests get wrong is told in Ollama's names") {
  const auto refused = [](ollama_call call, const std::string& fields, const std::string& param,
                          errc code = errc::bad_request) {
    CAPTURE(fields);
    const auto fault = ollama_fault(call, fields);
    CHECK(fault.param == param);
    CHECK(fault.code == code);
    CHECK(fault.message.find('`' + param) != std::string::npos);
  };
  const std::string x = R"(,"prompt":"x",)";
  const auto of_generate = ollama_call::generate, of_chat = ollama_call::chat;
  refused(of_generate, x + R"("options":{"temperature":9})", "options.temperature");
  refused(of_generate, x + R"("options":{"repeat_penalty":"a"})", "options.repeat_penalty");
  refused(of_generate, x + R"("options":{"num_predict":"a"})", "options.num_predict");
  refused(of_generate, x + R"("options":{"stop":[1]})", "options.stop");
  refused(of_generate, x + R"("options":{"num_ctx":"a"})", "options.num_ctx");
  refused(of_generate, x + R"("options":{"repeat_last_n":-2})", "options.repeat_last_n");
  refused(of_generate, x + R"("truncate":1)", "truncate");
  refused(of_generate, x + R"("options":[])", "options");
  refused(of_generate, x + R"("template":"{{ .Prompt }}")", "template", errc::unsupported);
  refused(of_generate, x + R"("suffix":"y")", "suffix", errc::unsupported);
  refused(of_generate, x + R"("images":["aGk="])", "images", errc::unsupported);
  refused(of_generate, x + R"("raw":true,"system":"s")", "raw");
  refused(of_generate, x + R"("raw":true,"context":[1])", "raw");
  refused(of_generate, x + R"("keep_alive":[])", "keep_alive");
  refused(of_generate, x + R"("format":"xml")", "format");
  refused(of_generate, x + R"("format":3)", "format");
  refused(of_generate, x + R"("think":"much")", "think");
  refused(of_generate, x + R"("stream":1)", "stream");
  refused(of_generate, R"(,"prompt":1)", "prompt");
  refused(of_chat, R"(,"messages":[{"role":"user","content":"x","images":["aGk="]}])", "messages[0].images",
          errc::unsupported);
  refused(of_chat, R"(,"messages":[3])", "messages[0]");
  refused(of_chat, R"(,"messages":[{"content":"x"}])", "messages[0].role");
}

TEST_CASE("A schema of Ollama's that cannot be compiled will be named as in the body") {
  for (const auto* format : {"{}", "\"json\""}) {
    const auto asked = only(generate(R"(,"prompt":"x","format":)" + std::string(format)));
    REQUIRE(guides::source_of(asked));
    CHECK(guides::source_of(asked)->field == "format");
  }
}
