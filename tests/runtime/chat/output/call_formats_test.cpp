// Every format of calls: what it reads, what only looks like it, answers that are cut, limits.
#include "tests/runtime/chat/output/parsed_output.hpp"

#include "runtime/support/json/json.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

using call_list_of = std::vector<std::pair<std::string, std::string>>;

struct example {
  const char* format;
  const char* text;
  const char* content;
  call_list_of calls;
};

const example read_examples[] = {
  {"hermes",
   "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>",
   "",
   {{"f", R"({"a": [1, "}"]})"}}},
  {"hermes",
   "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": "
   "{\"x\": \"é\\\"\"}}\n</tool_call>\n",
   "I look.",
   {{"f", "{}"}, {"g", R"({"x": "é\""})"}}},
  {"hermes",
   "<tool_call>{\"arguments\": {\"a\": -1.5e3}, \"id\": 7, \"name\": \"f\"}</tool_call> done.",
   "done.",
   {{"f", R"({"a": -1.5e3})"}}},
  {"hermes", "<tool_call>{\"name\": \"f\"}</tool_call>", "", {{"f", "{}"}}},
  {"hermes",
   "a <tool_call>b</tool_call> <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
   "a <tool_call>b</tool_call>",
   {{"f", "{}"}}},
  {"hermes", "<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "<tool_call>", {{"f", "{}"}}},
  {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}} oh </tool_call>", "oh </tool_call>", {{"f", "{}"}}},
  {"qwen3_coder",
   "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
   "</function>\n</tool_call>",
   "",
   {{"get_weather", R"({"city": "12", "days": 3})"}}},
  {"qwen3_coder",
   "So:\n<tool_call>\n<function=f>\n<parameter=code>\nif a < b:\n  \"x\"\n</parameter>\n</function>\n"
   "</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
   "So:",
   {{"f", R"({"code": "if a < b:\n  \"x\""})"}, {"g", "{}"}}},
  {"seed_oss",
   "\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Köln</parameter>\n"
   "<parameter=days>2</parameter>\n</function>\n</seed:tool_call>",
   "",
   {{"get_weather", R"({"city": "Köln", "days": 2})"}}},
  {"glm45",
   "Let me see.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>5</arg_value>\n"
   "<arg_key>days</arg_key>\n<arg_value>5</arg_value>\n</tool_call>",
   "Let me see.",
   {{"get_weather", R"({"city": "5", "days": 5})"}}},
  {"glm45",
   "<tool_call>f</tool_call><tool_call>g<arg_key>o</arg_key><arg_value>{\"a\": [true]}</arg_value></tool_call>",
   "",
   {{"f", "{}"}, {"g", R"({"o": {"a": [true]}})"}}},
  {"minimax_m2",
   "Let me see.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">5 <b></parameter>\n"
   "<parameter name=\"days\">5</parameter>\n</invoke>\n</minimax:tool_call>",
   "Let me see.",
   {{"get_weather", R"({"city": "5 <b>", "days": 5})"}}},
  {"minimax_m2",
   "<minimax:tool_call><invoke name=\"f\"></invoke>\n<invoke name=\"g\"><parameter name=\"o\">{\"a\": [true]}"
   "</parameter></invoke></minimax:tool_call>",
   "",
   {{"f", "{}"}, {"g", R"({"o": {"a": [true]}})"}}},
  {"lfm2",
   "I look. <|tool_call_start|>[get_weather(city=\"K\\\"öln, (x)\", days=2), g()]<|tool_call_end|>",
   "I look.",
   {{"get_weather", R"j({"city": "K\"öln, (x)", "days": 2})j"}, {"g", "{}"}}},
  {"lfm2",
   "<|tool_call_start|>[f(a=[1, True, None, 'it'], b={'c': (2.5, \"d\")}, e='x')]<|tool_call_end|> Done.",
   "Done.",
   {{"f", R"({"a": [1, true, null, "it"], "b": {"c": [2.5, "d"]}, "e": "x"})"}}},
  {"lfm2",
   "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|tool_call_end|>",
   "",
   {{"f", R"({"a": 1})"}}},
  {"gemma4",
   "So: <|tool_call>call:get_weather{city:<|\"|>K\"öln, {x}<|\"|>,days:2}<tool_call|><|tool_call>call:g{}<tool_call|>",
   "So:",
   {{"get_weather", R"j({"city": "K\"öln, {x}", "days": 2})j"}, {"g", "{}"}}},
  {"gemma4",
   "<|tool_call>call:f{a:[1,true,null,<|\"|>it<|\"|>],b:{c:2.5,<|\"|>d<|\"|>:{}}}<tool_call|>",
   "",
   {{"f", R"({"a": [1, true, null, "it"], "b": {"c": 2.5, "d": {}}})"}}},
  {"nemotron",
   "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>",
   "",
   {{"f", R"({"a": 1})"}, {"g", "{}"}}},
  {"llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "", {{"f", R"({"a": "b"})"}}},
  {"llama3_json",
   "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
   "",
   {{"f", "{}"}, {"g", "{}"}}},
  {"json", " {\"name\": \"f\", \"arguments\": {\"a\": {\"b\": null}}}\n", "", {{"f", R"({"a": {"b": null}})"}}},
  {"json",
   "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
   "",
   {{"f", "{}"}, {"g", "{}"}}},
  {"mistral",
   "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
   "",
   {{"f", R"({"a": 1})"}, {"g", "{}"}}},
  {"mistral",
   "Ok.[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}]",
   "Ok.",
   {{"f", R"({"a": 1})"}}},
  {"mistral_args",
   "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
   "",
   {{"f", R"({"a": 1})"}, {"g", "{}"}}},
  {"mistral_args", "[TOOL_CALLS]f{\"a\": 1}", "", {{"f", R"({"a": 1})"}}},
  {"granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "", {{"f", R"({"a": 1})"}}},
  {"phi4_mini",
   "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|/tool_call|>",
   "",
   {{"f", R"({"a": 1})"}}},
  {"deepseek_v3",
   "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```"
   "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>"
   "<｜tool▁calls▁end｜>",
   "Yes.",
   {{"f", R"({"a": 1})"}, {"g", "{}"}}},
  {"deepseek_v31",
   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"ü\": \"<｜\"}<｜tool▁call▁end｜>"
   "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
   "",
   {{"f", R"({"ü": "<｜"})"}, {"g", "{}"}}},
  {"kimi_k2",
   "Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
   "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
   "<|tool_calls_section_end|>",
   "Hm.",
   {{"f", R"({"a": 1})"}, {"g", "{}"}}},
  {"harmony", "<|channel|>final<|message|>Hello <b>", "Hello <b>", {}},
  {"harmony",
   "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
   "",
   {{"f", R"({"a": 1})"}}},
  {"harmony", " to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}", "", {{"f", R"({"a": 1})"}}},
  {"harmony",
   "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.g"
   "<|message|>{}<|call|>",
   "I look.",
   {{"g", "{}"}}},
};

// Content, byte for byte.
const std::pair<const char*, const char*> look_alikes[] = {
  {"hermes", "An answer.\n\nIn two parts. \n"},
  {"hermes", "  <tool_call> is a tag, <tool_call>{\"name\": \"nobody\", \"arguments\": {}}</tool_call> is no call \n"},
  {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"text\"}</tool_call>"},
  {"hermes", "<tool_call>{\"name\": 1}</tool_call>"},
  {"hermes", "<tool_call>{\"name\": \"f\", "},
  {"hermes", "<tool_cal"},
  {"hermes", "<tool_call>{\"arguments\": {\"a\": 1}, \"nam"},
  {"hermes", "<tool_call>{\"arguments\": {\"a\": 01}, \"name\": \"f\"}</tool_call>"},
  {"hermes", "<tool_call>{\"arguments\": {\"a\": \"\\x\"}, \"name\": \"f\"}</tool_call>"},
  {"qwen3_coder", "<tool_call>\n<function=nobody>\n</function>\n</tool_call>"},
  {"qwen3_coder", "<tool_call>\n<func"},
  {"seed_oss", "<seed:tool_call> ?"},
  {"glm45", "<tool_call>nobody\n<arg_key>a</arg_key>"},
  {"minimax_m2", "<minimax:tool_call>\n<invoke name=\"nobody\">\n</invoke>\n</minimax:tool_call>"},
  {"minimax_m2", "<minimax:tool_call>\n<invoke name=\"f"},
  {"lfm2", "<|tool_call_start|>[nobody(a=1)]<|tool_call_end|>"},
  {"lfm2", "<|tool_call_start|> so [f"},
  {"gemma4", "<|tool_call>call:nobody{}<tool_call|>"},
  {"gemma4", "<|tool_call>cal"},
  {"nemotron", "<TOOLCALL>[{\"name\": \"nobody\", \"arguments\": {}}]</TOOLCALL>"},
  {"llama3_json", "{\"name\": \"Ann\", \"age\": 5}"},
  {"llama3_json", "{\"nam"},
  {"llama3_json", "<|python_tag|>search.call(query=\"x\")"},
  {"llama3_json", "Say {\"name\": \"f\", \"parameters\": {}}"},
  {"json", "[1, 2]"},
  {"json", "\n \n"},
  {"mistral", "[TOOL_CALLS] are what it is about"},
  {"mistral", "[TOOL_CALLS][]"},
  {"mistral_args", "[TOOL_CALLS]f[ARGS] "},
  {"mistral_args", "[TOOL_CALLS]f[NO]{}"},
  {"granite", "<|tool_call|>[{\"name\""},
  {"deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n{}"},
  {"deepseek_v31", "<｜tool▁calls▁begin｜>?<｜tool▁calls▁begin｜"},
  {"kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.nobody:0<|tool_call_argument_begin|>{}"},
  {"harmony", "An answer without channels, <|"},
};

} // namespace

TEST_CASE("calls are read in every format, however the text is cut") {
  for (const auto& one : read_examples) {
    CAPTURE(one.format);
    const auto parsed = parse_output(output_of(one.format), one.text);
    CHECK(parsed.content == one.content);
    CHECK(parsed.calls == one.calls);
    for (const auto& [name, arguments] : parsed.calls)
      CHECK_NOTHROW(json::document::parse(arguments, "arguments", errc::bad_request));
  }
}

TEST_CASE("text that only looks like a call is content, byte for byte") {
  for (const auto& [format, text] : look_alikes) {
    CAPTURE(format);
    const auto parsed = parse_output(output_of(format), text);
    CHECK(parsed.calls.empty());
    CHECK(parsed.content == text);
  }
}

TEST_CASE("an answer cut anywhere loses nothing but white space and marks around its calls") {
  for (const auto& one : read_examples) {
    CAPTURE(one.format);
    const std::string_view text = one.text;
    for (std::size_t end = 0; end < text.size(); ++end) {
      const auto parsed = parse_cut(output_of(one.format), text.substr(0, end), {});
      CAPTURE(text.substr(0, end));
      REQUIRE(parsed.calls.size() <= one.calls.size());
      if (!parsed.calls.empty()) // what is cut of another call is not shown
        CHECK(std::string_view(one.content).starts_with(parsed.content));
      for (std::size_t i = 0; i < parsed.calls.size(); ++i) {
        CHECK(parsed.calls[i].first == one.calls[i].first);
        if (i + 1 < parsed.calls.size())
          CHECK(parsed.calls[i].second == one.calls[i].second);
      }
    }
  }
}

TEST_CASE("what is cut of another call is not shown, and text behind a call is") {
  const std::string call = R"({"name": "f", "arguments": {}})";
  for (const char* cut : {";", "; {", R"(; {"name": "g)", R"(; {"name": "g", "arguments": )"}) {
    const auto parsed = parse_output(output_of("json"), call + cut);
    CHECK(parsed.content.empty());
    CHECK(parsed.calls == call_list_of{{"f", "{}"}});
  }
  CHECK(parse_output(output_of("json"), call + "; {nothing").content == "; {nothing");
  CHECK(parse_output(output_of("hermes"), "<tool_call>" + call + "</tool_call> a < b <").content == "a < b <");
}

TEST_CASE("what is cut of the first call is text") {
  for (const std::string cut : {"Well <tool", "Well <tool_call>\n{\"name\": \"f", "<tool", "a <"}) {
    const auto parsed = parse_output(output_of("hermes"), cut);
    CHECK(parsed.content == cut);
    CHECK(parsed.calls.empty());
  }
}

TEST_CASE("a call streams its name first and its arguments as they come") {
  chat_output_parser parser(output_of("hermes"), "abcdefghijklmnopqrstuvwx");
  using kind = output_delta::kind;
  CHECK(parser.feed("Well <tool_call>\n{\"name\": \"f\", \"arguments\": ") ==
        output_deltas{{kind::content, "Well", 0, {}}});
  CHECK(parser.feed("{\"a\"") ==
        output_deltas{{kind::call_begin, "f", 0, "call_abcdefghijklmnopqrstu000"},
                      {kind::call_arguments, "{\"a\"", 0, {}}});
  CHECK(parser.feed(": 1") == output_deltas{{kind::call_arguments, ": 1", 0, {}}});
  CHECK(parser.feed("}}\n</tool_call>") == output_deltas{{kind::call_arguments, "}", 0, {}}});
  CHECK(parser.finish().empty());
  CHECK(parser.calls() == 1);
}

TEST_CASE("ids are as the families want them") {
  const auto ids = [](const char* format, const char* text) { return parse_cut(output_of(format), text, {}).ids; };
  CHECK(ids("mistral_args", "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[ARGS]{}") ==
        std::vector<std::string>{"abcdef000", "abcdef001"});
  CHECK(ids("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:7<|tool_call_argument_begin|>{}") ==
        std::vector<std::string>{"functions.f:0"});
}

TEST_CASE("arguments that are cut keep what there is of them") {
  CHECK(parse_output(output_of("hermes"), "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b").calls ==
        call_list_of{{"f", R"({"a": "b)"}});
  CHECK(parse_output(output_of("qwen3_coder"), "<tool_call><function=f><parameter=a>\nsome te").calls ==
        call_list_of{{"f", R"({"a": "some te)"}});
  CHECK(parse_output(output_of("hermes"), "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oh no").content ==
        "oh no");
}

TEST_CASE("what is held back, nested and called is bounded") {
  const std::string begin = "<tool_call>{\"arguments\": {\"a\": \"";
  const auto held = begin + std::string(chat_output_parser::most_held + 100, 'x');
  chat_output_parser parser(output_of("hermes"), "abcdefghijklmnopqrstuvwx");
  std::size_t yielded = 0;
  for (const auto& delta : parser.feed(held))
    yielded += delta.text.size();
  CHECK(yielded == held.size());

  const std::string deep = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + std::string(300, '[');
  CHECK(parse_cut(output_of("hermes"), deep, {}).content.size() > 90);

  std::string many;
  for (std::size_t i = 0; i < chat_output::most_calls + 2; ++i)
    many += "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  const auto parsed = parse_cut(output_of("hermes"), many, {});
  CHECK(parsed.calls.size() == chat_output::most_calls);
  CHECK(parsed.content.size() == 2 * (many.size() / (chat_output::most_calls + 2)));

  const std::string name = "[TOOL_CALLS]" + std::string(300, 'n');
  chat_output_parser names(output_of("mistral_args"), "abcdefghijklmnopqrstuvwx");
  CHECK_FALSE(names.feed(name).empty());
}

TEST_CASE("random mixtures of marks are the same however they are cut") {
  std::mt19937 random(11);
  for (const auto* format : call_formats()) {
    std::vector<std::string> pieces{"{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
                                    "f",
                                    "\n",
                                    "{",
                                    "}",
                                    "é",
                                    " ",
                                    "{\"a\": \"<\"}",
                                    "text",
                                    "[",
                                    "]",
                                    ";",
                                    "```json\n",
                                    ","};
    for (const auto marker : format->markers())
      for (int copies = 0; copies < 3; ++copies)
        pieces.emplace_back(marker);
    for (int k = 0; k < 20; ++k) {
      std::string text;
      for (int i = 0; i < 30; ++i)
        text += pieces[random() % pieces.size()];
      const auto parsed = parse_output(output_of(format->name()), text);
      if (parsed.calls.empty() && !format->channels())
        CHECK(parsed.content == text);
    }
  }
}
