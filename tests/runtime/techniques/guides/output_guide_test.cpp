// Guides of answers with calls: every format's guide accepts what its parser reads as calls that follow their schemas,
// and nothing else; free text around calls; reasoning ahead of them; schemas that cannot be enforced.
#include "runtime/guide/guide.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/techniques/guides/guide_sources.hpp"
#include "tests/runtime/chat/output/parsed_output.hpp"
#include "tests/runtime/guide/vocabulary.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const auto& vocabulary_of_bytes() {
  static const auto made = vocabulary_of();
  return made;
}

/// Whether the guide accepts the whole text.
bool follows(const std::shared_ptr<const guides::guide_source>& guide, std::string_view text) {
  REQUIRE(guide);
  guides::guide_state state(guides::compile_guide(*guide, vocabulary_of_bytes()));
  return state.advance(text) && state.can_end();
}

bool begins(const std::shared_ptr<const guides::guide_source>& guide, std::string_view text) {
  guides::guide_state state(guides::compile_guide(*guide, vocabulary_of_bytes()));
  return state.advance(text);
}

/// The shortest text that the guide forces and allows, picking the first allowed byte of `wanted` at each choice.
std::string forced_text(const std::shared_ptr<const guides::guide_source>& guide, std::string_view wanted) {
  guides::guide_state state(guides::compile_guide(*guide, vocabulary_of_bytes()));
  for (int steps = 0; steps < 2000 && !state.is_finished(); ++steps) {
    const auto forced = state.forced();
    if (!forced.empty()) {
      REQUIRE(state.advance(forced));
      continue;
    }
    if (state.can_end())
      break;
    bool moved = false;
    for (const char c : wanted)
      moved = moved || state.advance(std::string_view(&c, 1));
    REQUIRE(moved);
  }
  return state.text();
}

std::shared_ptr<chat_output> weather(std::string_view format, call_choice choice) {
  auto what = output_of(format);
  what->tools.erase(what->tools.begin(), what->tools.begin() + 2);
  what->choice = choice;
  return what;
}

struct forced_call {
  const char *format, *call, *wrong, *two;
};

// A call, one whose `days` is no number, and two calls.
const forced_call forced_calls[] = {
  {"hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\", \"days\": 2}}\n</tool_call>",
   "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\", \"days\": \"2\"}}\n</tool_call>",
   "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\"}}\n</tool_call>\n"
   "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"b\"}}\n</tool_call>"},
  {"json", "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\"}}",
   "{\"name\": \"get_weather\", \"arguments\": {\"days\": 2}}",
   "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\"}}; "
   "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"b\"}}"},
  {"llama3_json", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Köln\"}}",
   "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Köln\", \"more\": 1}}",
   "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"a\"}}; "
   "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"b\"}}"},
  {"mistral", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\"}}]",
   "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": []}]",
   "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\"}}, "
   "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"b\"}}]"},
  {"mistral_args", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Köln\"}", "[TOOL_CALLS]get_weather[ARGS]{}",
   "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"a\"}[TOOL_CALLS]get_weather[ARGS]{\"city\": \"b\"}"},
  {"granite", "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\"}}]",
   "<|tool_call|>[{\"name\": \"nobody\", \"arguments\": {\"city\": \"Köln\"}}]",
   "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\"}}, "
   "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"b\"}}]"},
  {"deepseek_v3",
   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Köln\"}\n```"
   "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
   "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>",
   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"a\"}\n```"
   "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"b\"}\n```"
   "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
  {"deepseek_v31",
   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Köln\"}<｜tool▁call▁end｜>"
   "<｜tool▁calls▁end｜>",
   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"a\"}<｜tool▁call▁end｜>"
   "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"b\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
  {"kimi_k2",
   "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
   "{\"city\": \"Köln\"}<|tool_call_end|><|tool_calls_section_end|>",
   "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:x",
   "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
   "{\"city\": \"a\"}<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>"
   "{\"city\": \"b\"}<|tool_call_end|><|tool_calls_section_end|>"},
  {"qwen3_coder",
   "<tool_call>\n<function=get_weather>\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
   "</function>\n</tool_call>",
   "<tool_call>\n<function=get_weather>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
   "<tool_call>\n<function=get_weather>\n<parameter=city>\na\n</parameter>\n</function>\n</tool_call>\n"
   "<tool_call>\n<function=get_weather>\n<parameter=city>\nb\n</parameter>\n</function>\n</tool_call>"},
  {"lfm2", "<|tool_call_start|>[get_weather(city=\"Köln\", days=2)]<|tool_call_end|>",
   "<|tool_call_start|>[get_weather(days=2)]<|tool_call_end|>",
   "<|tool_call_start|>[get_weather(city=\"a\"), get_weather(city=\"b\")]<|tool_call_end|>"},
  {"gemma4", "<|tool_call>call:get_weather{city:<|\"|>Köln<|\"|>,days:2}<tool_call|>",
   "<|tool_call>call:get_weather{city:<|\"|>Köln<|\"|>,days:<|\"|>2<|\"|>}<tool_call|>",
   "<|tool_call>call:get_weather{city:<|\"|>a<|\"|>}<tool_call|><|tool_call>call:get_weather{city:<|\"|>b<|\"|>}"
   "<tool_call|>"},
  {"minimax_m2",
   "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Köln</parameter>\n"
   "<parameter name=\"days\">2</parameter>\n</invoke>\n</minimax:tool_call>",
   "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"days\">2</parameter>\n</invoke>\n"
   "</minimax:tool_call>",
   "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">a</parameter>\n</invoke>\n"
   "<invoke name=\"get_weather\">\n<parameter name=\"city\">b</parameter>\n</invoke>\n</minimax:tool_call>"},
  {"glm45",
   "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n<arg_key>days</arg_key>\n"
   "<arg_value>2</arg_value>\n</tool_call>",
   "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n<arg_key>days</arg_key>\n"
   "<arg_value>two</arg_value>\n</tool_call>",
   "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>a</arg_value>\n</tool_call>\n"
   "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>b</arg_value>\n</tool_call>"},
};

} // namespace

TEST_CASE("forced calls follow their schema, in the format of the family") {
  for (const auto& [format, call, wrong, two] : forced_calls) {
    CAPTURE(format);
    const auto named = guides::output_guide(*weather(format, call_choice::named), nullptr);
    CHECK(follows(named, call));
    CHECK_FALSE(follows(named, wrong));
    CHECK_FALSE(follows(named, two));
    CHECK_FALSE(begins(named, "Hello"));
    const auto required = guides::output_guide(*weather(format, call_choice::required), nullptr);
    CHECK(follows(required, call));
    CHECK(follows(required, two));
    CHECK_FALSE(follows(required, ""));
    auto single = weather(format, call_choice::required);
    single->parallel = false;
    CHECK_FALSE(follows(guides::output_guide(*single, nullptr), two));
    const auto parsed = parse_output(weather(format, call_choice::required), two);
    CHECK(parsed.calls ==
          std::vector<std::pair<std::string, std::string>>{{"get_weather", R"({"city": "a"})"},
                                                           {"get_weather", R"({"city": "b"})"}});
    CHECK(parsed.content.empty());
  }
}

TEST_CASE("what a forced guide leads to is read as the call") {
  for (const auto* format : call_formats()) {
    if (format->tag(offered_tool("f", "")).content.find("json_schema") == std::string::npos)
      continue; // whose strings are free text
    CAPTURE(format->name());
    const auto what = weather(format->name(), call_choice::named);
    const auto text = forced_text(guides::output_guide(*what, nullptr), "\"}{:0<c\n");
    CAPTURE(text);
    const auto parsed = parse_output(what, text);
    REQUIRE(parsed.calls.size() == 1);
    CHECK(parsed.calls[0].first == "get_weather");
    CHECK(parsed.calls[0].second.find("\"city\"") != std::string::npos);
    CHECK(parsed.content.empty());
  }
}

TEST_CASE("of themselves, calls begin anywhere in free text and then follow their schema") {
  for (const auto& [format, call, wrong, two] : forced_calls) {
    CAPTURE(format);
    const auto guide = guides::output_guide(*weather(format, call_choice::automatic), nullptr);
    CHECK(follows(guide, "Hello, < there > [and] {here}"));
    CHECK(follows(guide, ""));
    CHECK(follows(guide, call));
    CHECK(follows(guide, two));
    CHECK_FALSE(follows(guide, wrong));
    if (!find_call_format(format)->layout().trigger.empty())
      CHECK(follows(guide, std::string("I look.\n") + call));
    auto single = weather(format, call_choice::automatic);
    single->parallel = false;
    CHECK_FALSE(follows(guides::output_guide(*single, nullptr), two));
  }
}

TEST_CASE("content that follows a guide stands beside calls, unless they are forced") {
  const auto schema = std::make_shared<const guides::guide_source>(
    guides::guide_source{.what = guides::guide_source::kind::json_schema, .text = R"({"type":"integer"})"});
  const auto guide = guides::output_guide(*weather("hermes", call_choice::automatic), schema);
  CHECK(follows(guide, "12"));
  CHECK(follows(guide, forced_calls[0].call));
  CHECK_FALSE(begins(guide, "text"));
  CHECK_FALSE(begins(guides::output_guide(*weather("hermes", call_choice::required), schema), "12"));
  auto compact = *schema;
  compact.compact = true;
  CHECK_THROWS_AS(guides::output_guide(*weather("hermes", call_choice::automatic),
                                       std::make_shared<const guides::guide_source>(compact)),
                  failure);
  const auto regex = std::make_shared<const guides::guide_source>(
    guides::guide_source{.what = guides::guide_source::kind::regex, .text = "a+"});
  CHECK(follows(guides::output_guide(*weather("hermes", call_choice::automatic), regex), "aa"));
}

TEST_CASE("guides begin behind the reasoning") {
  auto what = weather("hermes", call_choice::named);
  what->format.reasoning = find_reasoning_format("think");
  const std::string call = forced_calls[0].call;
  const auto optional = guides::output_guide(*what, nullptr);
  CHECK(follows(optional, call));
  CHECK(follows(optional, "<think>\nHm, <tool_call> or not?\n</think>\n\n" + call));
  CHECK_FALSE(begins(optional, "<think>Hm</think>Hello"));
  CHECK_FALSE(follows(optional, "<think>Hm"));
  what->opens_reasoning = true;
  const auto open = guides::output_guide(*what, nullptr);
  CHECK(open->after == "</think>");
  CHECK(follows(open, "\n\n" + call)); // what is behind it
  const auto harmony = guides::output_guide(*weather("harmony", call_choice::named), nullptr);
  CHECK(follows(harmony,
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
                "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"x\"}"));

  auto plain = weather("hermes", call_choice::none);
  CHECK(guides::output_guide(*plain, nullptr) == nullptr);
  plain->format.reasoning = find_reasoning_format("think");
  const auto schema = std::make_shared<const guides::guide_source>(
    guides::guide_source{.what = guides::guide_source::kind::json_schema, .text = R"({"type":"integer"})"});
  const auto behind = guides::output_guide(*plain, schema);
  CHECK(follows(behind, "<think>1 or 2?</think>\n\n2"));
  CHECK(follows(behind, "2"));
  CHECK_FALSE(follows(behind, "<think>1 or 2?</think>"));
}

TEST_CASE("a schema that cannot be enforced is refused by its tool, or any object will do") {
  auto what = weather("hermes", call_choice::automatic);
  what->tools.emplace_back("odd", R"({"type":"object","properties":{"a":{"$dynamicRef":"#x"}}})");
  what->tools.back().position = 5;
  const std::string call = "<tool_call>\n{\"name\": \"odd\", \"arguments\": {\"b\": [1]}}\n</tool_call>";
  const auto guide = guides::output_guide(*what, nullptr);
  CHECK(follows(guide, call));
  CHECK(follows(guide, forced_calls[0].call));
  CHECK_FALSE(follows(guide, forced_calls[0].wrong));
  const auto param_of = [&] {
    try {
      guides::compile_guide(*guides::output_guide(*what, nullptr), vocabulary_of_bytes());
    } catch (const failure& f) {
      CHECK(f.what_failed().code == errc::bad_request);
      return f.what_failed().param;
    }
    return std::string();
  };
  what->tools.back().strict = true;
  CHECK(param_of() == "tools[5].function.parameters");
  what->tools.back().strict = false;
  what->choice = call_choice::required;
  CHECK(param_of() == "tools[5].function.parameters");
  what->tools.back() = offered_tool("odd", R"({"type":"object","properties":{"a":{"type":"string","pattern":"^x"}}})");
  CHECK(param_of().empty());
  what->format.calls = find_call_format("glm45"); // which has no place for a pattern
  CHECK(param_of().empty());
  what->tools.back().strict = true;
  CHECK(param_of() == "tools[0].function.parameters");
}

TEST_CASE("parameters that the schema does not name are not made up, unless it speaks of them") {
  const auto guide_of = [](const char* schema) {
    auto what = output_of("json");
    what->tools = {offered_tool("f", schema)};
    what->choice = call_choice::named;
    return guides::output_guide(*what, nullptr);
  };
  const std::string call = "{\"name\": \"f\", \"arguments\": {\"b\": 1}}";
  CHECK_FALSE(follows(guide_of(R"({"properties":{"a":{"type":"integer"}}})"), call));
  CHECK(follows(guide_of(R"({"properties":{"a":{}},"additionalProperties":true})"), call));
  CHECK(follows(guide_of("{}"), call));
  CHECK(follows(guide_of(""), call));
  CHECK_FALSE(begins(guide_of("{}"), "{\"name\": \"f\", \"arguments\": 1"));
}

TEST_CASE("in every format, parameters that cannot be enforced are free, and never empty the call") {
  const char* schemas[] = {
    "",
    "{}",
    R"({"type":"object"})",
    R"({"type":"object","properties":null,"required":null})",
    R"({"type":"object","additionalProperties":{"type":"string"}})",
    R"({"properties":{"city":true},"required":["city"]})",
    R"({"properties":{"city":{"description":"where"}},"required":["city"]})",
    R"({"properties":{"city":{"type":"string","minLength":1}},"required":["city"]})",
    R"({"properties":{"city":{"type":"string","maxLength":9}},"required":["city"]})",
    R"({"properties":{"city":{"type":"string","pattern":"[a-z]"}},"required":["city"]})",
    R"({"properties":{"city":{"type":"string","format":"city-name"}},"required":["city"]})",
    R"({"properties":{"city":{"$ref":"#/$defs/R"}},"required":["city"],"$defs":{"R":{"type":"string"}}})",
    R"({"properties":{"city":{"$ref":"#/$defs/R"}},"required":["city"],"$defs":{"R":{"enum":["a","b"]}}})",
    R"({"$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{"city":{"type":"string"}}}}})",
    R"({"properties":{"city":{"type":"string"},"tags":{"type":"array","uniqueItems":true,"items":{}}},)"
    R"("required":["city"]})",
    R"({"properties":{"city":{"type":"string"}},"anyOf":[{"required":["city"]},{"required":["place"]}]})",
    R"({"allOf":[{"properties":{"city":{"type":"string"}}}],"type":"object"})",
    R"({"type":"object","patternProperties":{"^c":{"type":"string"}}})",
    R"({"type":"object","required":["city"]})",
  };
  for (const auto& [format, call, wrong, two] : forced_calls)
    for (const auto* schema : schemas) {
      const auto choice = call_choice::automatic;
      CAPTURE(format);
      CAPTURE(schema);
      auto what = weather(format, choice);
      what->tools = {offered_tool("get_weather", schema)};
      CHECK(follows(guides::output_guide(*what, nullptr), two));
      const auto parsed = parse_output(what, two);
      REQUIRE(parsed.calls.size() == 2);
      CHECK(parsed.calls[1].second == R"({"city": "b"})");
    }
}

TEST_CASE("values between tags keep what their schema refers to") {
  const std::string begin = "<tool_call>\n<function=f>\n", end = "</function>\n</tool_call>";
  const auto guide_of = [](const char* schema) {
    auto what = output_of("qwen3_coder");
    what->tools = {offered_tool("f", schema)};
    what->choice = call_choice::required;
    return guides::output_guide(*what, nullptr);
  };
  const auto parameter = [](const std::string& name, const std::string& value) {
    return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
  };
  const auto referring = guide_of(
    R"({"$id":"https://a/b","properties":{"r":{"$ref":"#/$defs/R"}},"required":["r"],)"
    R"("$defs":{"R":{"type":"object","properties":{"n":{"$ref":"#/$defs/N"}},"required":["n"]},"N":{"type":"integer"}}})");
  CHECK(follows(referring, begin + parameter("r", R"({"n": 1})") + end));
  CHECK_FALSE(follows(referring, begin + parameter("r", R"({"n": "x"})") + end));
  CHECK_FALSE(follows(referring, begin + end));

  const auto moved = guide_of(
    R"({"$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{"r":{"$ref":"#/$defs/N"}},"required":["r"]},)"
    R"("N":{"type":"integer"}}})");
  CHECK(follows(moved, begin + parameter("r", "7") + end));
  CHECK_FALSE(follows(moved, begin + parameter("r", "x") + end));

  const auto none = guide_of(R"({"type":"object","properties":{}})");
  CHECK(follows(none, begin + end));
  CHECK_FALSE(begins(none, begin + "<parameter"));
  const auto more = guide_of(R"({"properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":true})");
  CHECK(follows(more, begin + parameter("n", "1") + parameter("other", "text") + end));
}

TEST_CASE("between tags, what may be a string is text, and the reader takes it as the guide means it") {
  const auto forced = [](const char* schema, bool strict = false) {
    auto what = output_of("qwen3_coder");
    what->tools = {offered_tool(
      "f", std::string(R"({"type":"object","properties":{"a":)") + schema + R"(},"required":["a"]})", strict)};
    what->choice = call_choice::named;
    return what;
  };
  const auto call = [](const std::string& value) {
    return "<tool_call>\n<function=f>\n<parameter=a>\n" + value + "\n</parameter>\n</function>\n</tool_call>";
  };
  const auto reads = [&](const auto& what, const std::string& value, const char* json) {
    CAPTURE(value);
    CHECK(follows(guides::output_guide(*what, nullptr), call(value)));
    CHECK(parse_output(what, call(value)).calls.at(0).second == std::string("{\"a\": ") + json + '}');
  };
  for (const bool strict : {false, true}) {
    const auto maybe = forced(R"({"anyOf":[{"type":"string"},{"type":"null"}]})", strict);
    reads(maybe, "Paris", "\"Paris\"");
    reads(maybe, "12", "\"12\"");
    reads(maybe, "null", "null");
    const auto few = forced(R"({"anyOf":[{"type":"string","enum":["a","b"]},{"type":"null"}]})", strict);
    reads(few, "b", "\"b\"");
    reads(few, "null", "null");
    CHECK_FALSE(follows(guides::output_guide(*few, nullptr), call("c")));
    reads(forced(R"({"enum":["a",null]})", strict), "null", "null");
  }
  reads(forced(R"({"type":["integer","string"]})"), "5", "5");
  reads(forced(R"({"type":["integer","string"]})"), "five", "\"five\"");
  CHECK_THROWS_AS(
    guides::output_guide(*forced(R"({"anyOf":[{"type":"string","pattern":"^a"},{"type":"null"}]})", true), nullptr),
    failure);

  // Strict: what is read as another type follows the schema, all else is a string.
  const auto refuses = [&](const auto& what, const std::string& value) {
    CAPTURE(value);
    CHECK_FALSE(follows(guides::output_guide(*what, nullptr), call(value)));
  };
  const auto number = forced(R"({"type":["integer","string"],"minimum":3})", true);
  for (const auto* text :
       {"five", "5 apples", "2026-11-26", "1.2.3", "", "[5]", "true", "+", "5e3x", "\"5\"", "ü", " a\nb "})
    reads(number, text, json_text(text).c_str());
  reads(number, "5", "5");
  for (const auto* text : {"2", "2.5", "-7", "+7", "+-7", "1_000", ".5", "7.", "007", " 2 ", "1e2_0"})
    refuses(number, text);
  const auto several = forced(
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"integer"}},{"type":"boolean"},)"
    R"({"type":"object","properties":{"k":{"type":"null"}},"required":["k"]}]})",
    true);
  reads(several, "[1, 2]", "[1, 2]");
  reads(several, "[1] and [2", "\"[1] and [2\"");
  reads(several, "true", "true");
  reads(several, "True story", "\"True story\"");
  reads(several, "12", "\"12\"");
  reads(several, "null", "\"null\"");
  reads(several, "{\"k\": null}", "{\"k\": null}");
  for (const auto* text : {"[\"a\"]", "['a']", "(1, 'b')", "{\"k\": 1}", "{'k': 1}", "True"})
    refuses(several, text);
  const auto few_of_both = forced(R"({"enum":["auto",1,"2",2,"3"]})", true);
  reads(few_of_both, "auto", "\"auto\"");
  reads(few_of_both, "1", "1");
  reads(few_of_both, "2", "2");
  refuses(few_of_both, "3"); // which would be read as the number
  refuses(few_of_both, "else");
  CHECK_THROWS_AS(guides::output_guide(*forced(R"({"type":["integer","string"],"maxLength":3})", true), nullptr),
                  failure);
  auto referring = output_of("qwen3_coder");
  referring->tools = {offered_tool(
    "f",
    R"({"type":"object","properties":{"a":{"anyOf":[{"$ref":"#/$defs/N"},{"type":"string"}]}},"required":["a"],)"
    R"("$defs":{"N":{"type":"integer","maximum":9}}})",
    true)};
  referring->choice = call_choice::named;
  reads(referring, "7", "7");
  reads(referring, "x7", "\"x7\"");
  refuses(referring, "70");
}
