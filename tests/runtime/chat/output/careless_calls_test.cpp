// Calls of the newer families as their models write them: values of every type, markup within strings, marks that are
// left out or misplaced. The cases are what published templates print and what broke other servers' parsers.
#include "runtime/support/json/json.hpp"
#include "tests/runtime/chat/output/parsed_output.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

using arguments_of_calls = std::vector<std::string>;

/// One tool, `edit`, with parameters of many types; `none` has no parameters.
std::shared_ptr<chat_output> editor(std::string_view format, std::string_view reasoning = "none") {
  auto what = output_of(format, reasoning);
  what->tools.clear();
  what->tools.emplace_back("edit", R"({"type":"object","properties":{
    "path":{"type":"string"},"text":{"type":"string"},
    "note":{"anyOf":[{"type":"string"},{"type":"null"}]},
    "place":{"type":["integer","string"]},
    "body":{"anyOf":[{"$ref":"#/$defs/words"},{"type":"array","items":{}}]},
    "count":{"type":"integer"},"share":{"type":"number"},"force":{"type":"boolean"},"last":{"type":["boolean","null"]},
    "tags":{"type":"array"},"options":{"type":"object"},"kind":{"enum":["a","b"]},"any":{}},
    "$defs":{"words":{"type":"string"}}})");
  what->tools.emplace_back("none", "");
  what->tools.emplace_back("Files.none", "");
  return what;
}

struct careless {
  const char *text, *content;
  arguments_of_calls arguments;
};

void check_edits(std::string_view format, const std::vector<careless>& examples) {
  CAPTURE(format);
  for (const auto& [text, content, arguments] : examples) {
    const auto parsed = parse_output(editor(format), text);
    CAPTURE(text);
    CHECK(parsed.content == content);
    arguments_of_calls found;
    for (const auto& [name, each] : parsed.calls) {
      found.push_back(each);
      CHECK_NOTHROW(json::document::parse(each, "arguments", errc::bad_request));
    }
    CHECK(found == arguments);
  }
}

std::string qwen_edit(const std::string& parameters) {
  return "<tool_call>\n<function=edit>\n" + parameters + "</function>\n</tool_call>";
}

/// Of each parameter, what its value is read as in the formats of plain text.
std::string read_value(const std::string& parameter, const std::string& text) {
  const auto read = [&](std::string_view format, const std::string& call) {
    const auto parsed = parse_output(editor(format), call);
    REQUIRE(parsed.calls.size() == 1);
    return parsed.calls[0].second;
  };
  const auto result = read("qwen3_coder", qwen_edit("<parameter=" + parameter + ">\n" + text + "\n</parameter>\n"));
  CHECK(read("glm45",
             "<tool_call>edit\n<arg_key>" + parameter + "</arg_key>\n<arg_value>" + text +
               "</arg_value>\n</tool_call>") == result);
  CHECK(read("minimax_m2",
             "<minimax:tool_call>\n<invoke name=\"edit\">\n<parameter name=\"" + parameter + "\">" + text +
               "</parameter>\n</invoke>\n</minimax:tool_call>") == result);
  const auto head = "{\"" + parameter + "\": ";
  REQUIRE(result.starts_with(head));
  return result.substr(head.size(), result.size() - head.size() - 1);
}

} // namespace

TEST_CASE("values in plain text have the types that their schema admits") {
  CHECK(read_value("path", "12") == "\"12\"");
  CHECK(read_value("path", "null") == "\"null\"");
  CHECK(read_value("path", "{\"a\": 1}") == R"("{\"a\": 1}")");
  CHECK(read_value("path", "\"quoted\"") == R"("\"quoted\"")");
  CHECK(read_value("path", "") == "\"\"");
  CHECK(read_value("path", "Köln\t<b>") == R"("Köln\t<b>")");
  CHECK(read_value("note", "12345") == "\"12345\"");
  CHECK(read_value("note", "null") == "null");
  CHECK(read_value("note", "None") == "null");
  CHECK(read_value("note", "None of them") == "\"None of them\"");
  CHECK(read_value("note", "nullable") == "\"nullable\"");
  CHECK(read_value("note", "[1]") == "\"[1]\"");
  CHECK(read_value("note", "\"Paris\"") == R"("\"Paris\"")");
  CHECK(read_value("place", "5") == "5");
  CHECK(read_value("place", "-5 ") == "-5");
  CHECK(read_value("place", "5th line") == "\"5th line\"");
  CHECK(read_value("place", "007") == "\"007\"");
  CHECK(read_value("body", "[\"a\", {\"b\": 1}]") == "[\"a\", {\"b\": 1}]");
  CHECK(read_value("body", "[x] done") == "\"[x] done\"");
  CHECK(read_value("body", "{\"a\": 1}") == R"("{\"a\": 1}")");
  CHECK(read_value("count", " 7 ") == "7");
  CHECK(read_value("count", "+7") == "7");
  CHECK(read_value("count", "007") == "7");
  CHECK(read_value("count", "seven") == "\"seven\"");
  CHECK(read_value("share", "-.5") == "-0.5");
  CHECK(read_value("share", "1e-3") == "1e-3");
  CHECK(read_value("force", "True") == "true");
  CHECK(read_value("force", "false") == "false");
  CHECK(read_value("last", "None") == "null");
  CHECK(read_value("last", "False") == "false");
  CHECK(read_value("tags", "['a', 1, True]") == R"(["a", 1, true])");
  CHECK(read_value("options", "{'filePath': '/a/b.js', 'x': None}") == R"({"filePath": "/a/b.js", "x": null})");
  CHECK(read_value("options", "{\"a\": {\"b\": [\"}\"]}}") == R"({"a": {"b": ["}"]}})");
  CHECK(read_value("kind", "a") == "\"a\"");
  CHECK(read_value("any", "true") == "true");
  CHECK(read_value("any", "{\"a\": 1} and more") == R"("{\"a\": 1} and more")");
  CHECK(read_value("any", "True") == "\"True\"");
}

TEST_CASE("Qwen 3.5, Qwen 3 Coder and Nemotron 3 call with markup in strings and with tags left out") {
  const std::string inner =
    "<tool_call>\n<function=edit>\n<parameter=path>\nx\n</parameter> is how\nto </function> call";
  check_edits(
    "qwen3_coder",
    {
      {qwen_edit("<parameter=text>\n" + inner + "\n</parameter>\n").c_str(),
       "",
       {R"({"text": "<tool_call>\n<function=edit>\n<parameter=path>\nx\n</parameter> is how\nto </function> call"})"}},
      {"<tool_call>\n<function=none>\n</function>\n</tool_call>", "", {"{}"}},
      {"<tool_call><function=edit><parameter=path>a</parameter><parameter=count>1</parameter></function></tool_call>",
       "",
       {R"({"path": "a", "count": 1})"}},
      {"<tool_call>\n<function=edit>\n<parameter=text>\n\n\nthree lines\n\n</parameter>\n</function>\n</tool_call>",
       "",
       {R"({"text": "\n\nthree lines\n"})"}},
      // the tag in front is left out
      {"I edit.\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
       "I edit.",
       {R"({"path": "a"})"}},
      {"<function=none>\n</function>\n<function=Files.none></function> So.", "So.", {"{}", "{}"}},
      {"<tool_call>\n<function=none>\n</function>\n<function=none>\n</function>\n</tool_call>", "", {"{}", "{}"}},
      // tags behind are left out
      {"<tool_call>\n<function=edit>\n<parameter=path>\na\n</function>\n</tool_call>", "", {R"({"path": "a"})"}},
      {"<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</tool_call>", "", {R"({"path": "a"})"}},
      {"<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>", "", {R"({"path": "a"})"}},
      {"<tool_call>\n<function=none>\n</function>\n</tool_call>\n\n<tool_call>\n<function=edit>\n<parameter=count>\n2\n"
       "</parameter>\n</function>\n</tool_call>\nDone.",
       "Done.",
       {"{}", R"({"count": 2})"}},
      // what names no parameter is dropped, and the rest remains JSON
      {"<tool_call>\n<function=edit>\n<parameter=\n7>\nx\n</parameter>\n<parameter=count>\n1\n</parameter>\n</function>"
       "\n</tool_call>",
       "",
       {R"({"7": "x", "count": 1})"}},
      {"<tool_call>\n<function=edit>\n<parameter=count>\n1\n</parameter>\n<parameter=path: [1]\n</parameter>\n"
       "</function>\n</tool_call>",
       "",
       {R"({"count": 1})"}},
      {"<function=nobody>\n</function>", "<function=nobody>\n</function>", {}},
      {"if a <function=x> b", "if a <function=x> b", {}},
    });
}

TEST_CASE("GLM 4.5 to 4.7 call on one line or several, and without the tag that opens a value") {
  check_edits(
    "glm45",
    {
      {"<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_value></tool_call>", "", {R"({"path": "a"})"}},
      {"\n<tool_call>none</tool_call>\n<tool_call>none\n</tool_call>", "", {"{}", "{}"}},
      {"<tool_call>edit\n<arg_key>path</arg_key>how many days</arg_value>\n<arg_key>count</arg_key>\n"
       "<arg_value>3</arg_value>\n</tool_call>",
       "",
       {R"({"path": "how many days", "count": 3})"}},
      {"<tool_call>edit\n<arg_key>text</arg_key>\n<arg_value>a </arg_value> b </tool_call> c\n"
       "</arg_value>\n</tool_call>",
       "",
       {R"({"text": "a </arg_value> b </tool_call> c\n"})"}},
      {"<tool_call>edit\n<arg_key>path</arg_key>\n</tool_call>", "", {"{}"}},
      {"<tool_call>edit\n<arg_key>note</arg_key>\n<arg_value>null</arg_value>\n</tool_call> I did.",
       "I did.",
       {R"({"note": null})"}},
    });
}

TEST_CASE("MiniMax M2 calls several tools in a section, with its own marks in strings") {
  check_edits(
    "minimax_m2",
    {
      {"<minimax:tool_call><invoke name=\"edit\"><parameter name=\"text\">Montréal </minimax:tool_call> café"
       "</parameter></invoke></minimax:tool_call>",
       "",
       {R"({"text": "Montréal </minimax:tool_call> café"})"}},
      {"<minimax:tool_call>\n<invoke name=\"edit\">\n<parameter name=\"text\"><parameter name=\"x\">1</parameter>"
       "<b></parameter>\n</invoke>\n</minimax:tool_call>",
       "",
       {R"({"text": "<parameter name=\"x\">1</parameter><b>"})"}},
      {"<minimax:tool_call>\n<invoke name=\"edit\">\n<parameter name=\"a>b\">1</parameter>\n</invoke>\n"
       "<invoke name=\"none\">\n</invoke>\n</minimax:tool_call>",
       "",
       {R"({"a>b": 1})", "{}"}},
      {"\n\n<invoke name=\"edit\">\n<parameter name=\"count\">1</parameter>\n</invoke>\n</minimax:tool_call>",
       "",
       {R"({"count": 1})"}},
      {"<minimax:tool_call>\n<invoke name=\"none\">\n</invoke>", "", {"{}"}},
    });
}

TEST_CASE("LFM2 calls in Python, with quotes that nobody escaped and numbers that are none in JSON") {
  const auto call = [](const std::string& arguments) {
    return "<|tool_call_start|>[edit(" + arguments + ")]<|tool_call_end|>";
  };
  const std::pair<std::string, std::string> cases[] = {
    {"text='grep -F \"]\" log.txt, (x'", R"({"text": "grep -F \"]\" log.txt, (x"})"},
    {"text='cat > f.py << EOF\nprint()\nEOF\n'", R"({"text": "cat > f.py << EOF\nprint()\nEOF\n"})"},
    {R"(text='pattern \\', count=1)", R"({"text": "pattern \\", "count": 1})"},
    {"text='sed -n '1,9p' f.py', path=\"it's\"", R"({"text": "sed -n '1,9p' f.py", "path": "it's"})"},
    {"text='it's, or 'is it', here?'", R"({"text": "it's, or 'is it', here?"})"},
    {R"(text="say \"yes\", path=1")", R"({"text": "say \"yes\", path=1"})"},
    {"text=\"\"\"a \"b\", 'c'\n\"\"\", path=''", R"({"text": "a \"b\", 'c'\n", "path": ""})"},
    {"path=\"\", count=+7", R"({"path": "", "count": 7})"},
    {"count=07, share=-74.0046", R"({"count": 7, "share": -74.0046})"},
    {"count = 1_000 , force = True", R"({"count": 1000, "force": true})"},
    {"tags=(800, 600), options={'a': [True, null], \"b\": 'it's'}",
     R"({"tags": [800, 600], "options": {"a": [true, null], "b": "it's"}})"},
    {"options={\"reminder\": true, \"text\": \"a } b\"}", R"({"options": {"reminder": true, "text": "a } b"}})"},
    {"path=12, note=None, from=1", R"({"path": "12", "note": null, "from": 1})"},
    {"path=weather in Tokyo, Japan, count=2", R"({"path": "weather in Tokyo, Japan", "count": 2})"},
    {"path=datetime(2024, 1, 2), count=2,", R"j({"path": "datetime(2024, 1, 2)", "count": 2})j"},
    {"", "{}"},
  };
  for (const auto& [arguments, expected] : cases)
    check_edits("lfm2", {{call(arguments).c_str(), "", {expected}}});
  check_edits("lfm2",
              {
                {"<|tool_call_start|> [none(), Files.none(), edit(count=1)] <|tool_call_end|>It is done.",
                 "It is done.",
                 {"{}", "{}", R"({"count": 1})"}},
                {"<|tool_call_start|>[edit(\"x\", count=1)]<|tool_call_end|>", ", count=1)]<|tool_call_end|>", {"{}"}},
                {"<|tool_call_start|>[edit(count=1)", "", {R"({"count": 1})"}},
                {"<|tool_call_start|>[]<|tool_call_end|>", "<|tool_call_start|>[]<|tool_call_end|>", {}},
              });
}

TEST_CASE("Gemma 4 calls with quotes in strings, plain quotes, and marks left out") {
  const auto call = [](const std::string& arguments) { return "<|tool_call>call:edit{" + arguments + "}<tool_call|>"; };
  const std::string q = "<|\"|>";
  const std::pair<std::string, std::string> cases[] = {
    {"path:" + q + "a \"b\" {c}, d:e" + q, R"({"path": "a \"b\" {c}, d:e"})"},
    {"text:" + q + "sql(" + q + q + q + " SELECT x" + q + q + q + ").df()" + q + ",tags:[" + q + "df_1" + q +
       "],count:1",
     R"j({"text": "sql(\"\"\" SELECT x\"\"\").df()", "tags": ["df_1"], "count": 1})j"},
    {"path:weather in Tokyo" + q, R"({"path": "weather in Tokyo"})"},
    {"path:what's on in Paris, France" + q + ",count:5", R"({"path": "what's on in Paris, France", "count": 5})"},
    {"tags:[" + q + "/a.pdf" + q + ", " + q + "/b.pdf" + q + "],path:" + q + q,
     R"({"tags": ["/a.pdf", "/b.pdf"], "path": ""})"},
    {"tags:[\"ds_1\", 'ds_2']", R"({"tags": ["ds_1", "ds_2"]})"},
    {"options:{\"mode\": \"has } brace\",n:[1,{x:" + q + "a " + q + "b" + q + " c" + q + "}]}",
     R"({"options": {"mode": "has } brace", "n": [1, {"x": "a \"b\" c"}]}})"},
    {"\n  options: {\n a:" + q + "x" + q + ",\n b : [ ]\n},\n  count: 2\n",
     R"({"options": {"a": "x", "b": []}, "count": 2})"},
    {q + "path" + q + ":" + q + "x" + q + ",\"count\":3", R"({"path": "x", "count": 3})"},
    {"path:\"plain, text\",force:true,note:null", R"({"path": "plain, text", "force": true, "note": null})"},
    {"share:108.5,count:-3,last:None", R"({"share": 108.5, "count": -3, "last": null})"},
    {"text:" + q + "line\n<|tool|>\ttab \\n é" + q, R"({"text": "line\n<|tool|>\ttab \\n é"})"},
    {"", "{}"},
  };
  for (const auto& [arguments, expected] : cases)
    check_edits("gemma4", {{call(arguments).c_str(), "", {expected}}});
  check_edits(
    "gemma4",
    {
      {"<|tool_call>call:none{}<tool_call|><|tool_call>call:Files.none{}<tool_call|>\nDone.", "Done.", {"{}", "{}"}},
      {"So: <|tool_call>call:edit{path:<|\"|>a<|\"|>}", "So:", {R"({"path": "a"})"}},
    });
}

TEST_CASE("Nemotron's arguments may be JSON in a string, and its list may lack brackets") {
  check_edits(
    "nemotron",
    {
      {R"(<TOOLCALL>[{"name": "edit", "arguments": "{\"path\": \"a\\\"b\", \"count\": 1}"}]</TOOLCALL>)",
       "",
       {R"({"path": "a\"b", "count": 1})"}},
      {R"(<TOOLCALL>[{"arguments": "{}", "name": "edit"}, {"name": "none", "arguments": null}]</TOOLCALL>)",
       "",
       {"{}", "{}"}},
      {R"(<TOOLCALL>{"name": "edit", "arguments": {"count": 1}}</TOOLCALL> Done.)", "Done.", {R"({"count": 1})"}},
      {R"(<TOOLCALL>[{"name": "edit", "arguments": "text"}]</TOOLCALL>)",
       R"(<TOOLCALL>[{"name": "edit", "arguments": "text"}]</TOOLCALL>)",
       {}},
      {R"(<TOOLCALL>[{"name": "edit", "arguments": "[1]"}]</TOOLCALL>)",
       R"(<TOOLCALL>[{"name": "edit", "arguments": "[1]"}]</TOOLCALL>)",
       {}},
    });
}

TEST_CASE("long strings stream as they come, whatever their length") {
  std::string text;
  for (int i = 0; text.size() < 3 * chat_output_parser::most_held; ++i)
    text += "line " + std::to_string(i) + " of \"source\" </parameter> <b>\n";
  const std::tuple<const char*, std::string, std::string> calls[] = {
    {"qwen3_coder", "<tool_call>\n<function=edit>\n<parameter=text>\n", "\n</parameter>\n</function>\n</tool_call>"},
    {"glm45", "<tool_call>edit\n<arg_key>text</arg_key>\n<arg_value>", "</arg_value>\n</tool_call>"},
    {"minimax_m2", "<minimax:tool_call>\n<invoke name=\"edit\">\n<parameter name=\"text\">",
     "</parameter>\n</invoke>\n</minimax:tool_call>"},
    {"gemma4", "<|tool_call>call:edit{text:<|\"|>", "<|\"|>}<tool_call|>"},
  };
  for (const auto& [format, begin, end] : calls) {
    CAPTURE(format);
    chat_output_parser parser(editor(format), "abcdefghijklmnopqrstuvwx");
    parsed_output result;
    collect(result, parser.feed(begin + text.substr(0, 2000)));
    REQUIRE(result.calls.size() == 1);
    CHECK(result.calls[0].second.size() > 2000);
    collect(result, parser.feed(text.substr(2000) + end));
    collect(result, parser.finish());
    std::string_view found;
    const auto read = json::document::parse(result.calls[0].second, "arguments", errc::bad_request);
    REQUIRE(!json::find(read.root(), "text")->get(found));
    CHECK(found == text);
    CHECK(result.content.empty());
  }
}

TEST_CASE("calls in reasoning that has no end count; drafts of calls in reasoning do not") {
  const std::string call =
    "<tool_call>\n<function=edit>\n<parameter=count>\n1\n</parameter>\n</function>\n</tool_call>";
  auto what = editor("qwen3_coder", "think");
  what->opens_reasoning = true;
  const auto open = parse_output(what, "I should edit.\n\n" + call);
  CHECK(open.reasoning == "I should edit.");
  CHECK(open.content.empty());
  REQUIRE(open.calls.size() == 1);
  CHECK(open.calls[0].second == R"({"count": 1})");
  const auto two = parse_output(what, "So:" + call + "\n" + call + "\n");
  CHECK(two.calls.size() == 2);
  CHECK(two.reasoning == "So:");

  const auto draft = parse_output(what, "Perhaps " + call + "? No. <tool_call> is a tag.\n</think>\n\nHello");
  CHECK(draft.calls.empty());
  CHECK(draft.reasoning == "Perhaps " + call + "? No. <tool_call> is a tag.");
  CHECK(draft.content == "Hello");
  const auto last = parse_output(what, "Hm. " + call + "\n</think>\n\n" + call);
  CHECK(last.calls.size() == 1);
  CHECK(last.reasoning == "Hm. " + call);
  const auto cut = parse_output(what, "Hm. <tool_call>\n<function=edit>\n<parameter=cou");
  CHECK(cut.calls.empty());
  CHECK(cut.reasoning == "Hm. <tool_call>\n<function=edit>\n<parameter=cou");
  const auto quoted = parse_cut(what, "What is <tool_call>? " + std::string(70'000, 'x') + "\n</think>Yes", {});
  CHECK(quoted.reasoning.size() > 70'000);
  CHECK(quoted.content == "Yes");
}

TEST_CASE("Types of parameters whose choices refer to choices are looked for in time") {
  const auto nested = [](int wide) {
    std::string defs;
    for (int i = 0; i < 7; ++i) {
      std::string choices;
      for (int k = 0; k < wide; ++k)
        choices += std::string(k > 0 ? "," : "") + R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
      defs += "\"d" + std::to_string(i) + R"(":{"anyOf":[)" + choices + "]},";
    }
    return R"({"$defs":{)" + defs +
      R"("d7":{"type":"number"}},"properties":{"a":{"$ref":"#/$defs/d0"},"b":{"type":"number"}}})";
  };
  CHECK_FALSE(offered_tool("f", nested(1), false).kind_of("a").admits_string());
  const offered_tool wide("f", nested(30), false); // 30^7 choices in 5 kB
  CHECK(wide.kind_of("a").admits_string());        // not known
  CHECK_FALSE(wide.kind_of("b").admits_string());
}
