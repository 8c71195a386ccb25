#include "runtime/chat/whole_prompt.hpp"

#include "runtime/chat/chat_template.hpp"
#include "tests/runtime/chat/values.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

namespace fs = std::filesystem;
using namespace troupe;
using namespace troupe::test;

namespace {

/// A template, and how often it was rendered.
struct counted_template {
  explicit counted_template(std::string_view source) : is(chat_template::parse(source, "<s>", "</s>")) {}

  whole_prompt operator()(std::string_view messages, const jinja::value& tools = nullptr) {
    times = 0;
    const auto render = [&](const jinja::value& shaped) {
      ++times;
      return is.render({.messages = shaped, .tools = tools});
    };
    return render_whole(parsed(messages), render, plain_marks(specials), continues);
  }

  specials_finder specials = nullptr;
  bool continues = false;

  chat_template is;
  int times = 0;
};

constexpr auto shows_all = "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
                           "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}\n{% endfor %}";
constexpr auto late_system_is_lost =
  "{% for m in messages %}{% if m.role != 'system' or loop.first %}[{{ m.role }}]{{ m.content }}\n{% endif %}"
  "{% endfor %}";
constexpr auto no_tools = "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}[{{ m.role }}]"
                          "{{ m.content or '' }}\n{% endif %}{% endfor %}";

constexpr auto late_system = R"([{"role":"system","content":"Be kind."},{"role":"user","content":"Hi."},
  {"role":"assistant","content":"Yes?"},{"role":"system","content":"Nine left."},{"role":"user","content":"Go on."}])";
constexpr auto called = R"([{"role":"user","content":"Hi."},{"role":"assistant","content":"I look.","tool_calls":[
  {"id":"call_1","type":"function","function":{"name":"f","arguments":{"x":"deep"}}}]},
  {"role":"tool","tool_call_id":"call_1","content":"It says \"so\"\n."},{"role":"user","content":"Be kind."}])";

std::string_view text_of(const jinja::value& of, std::string_view key) {
  const auto* found = of.map().find(key);
  return found && found->is_string() ? std::string_view(found->str()) : std::string_view();
}

/// Where `<e>` is written.
std::vector<std::string_view> ends_in(std::string_view text) {
  std::vector<std::string_view> specials;
  for (auto at = text.find("<e>"); at != text.npos; at = text.find("<e>", at + 1))
    specials.push_back(text.substr(at, 3));
  return specials;
}

} // namespace

TEST_CASE("Special tokens that messages write out are told from those of the template") {
  counted_template chat("{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<e>{% endfor %}");
  chat.specials = ends_in;
  const auto prompt = chat(R"([{"role":"system","content":"S<e>"},{"role":"user","content":"<e>a <e><e> "},)"
                           R"({"role":"assistant","content":"b<e>"},{"role":"tool","content":"c<e>"}])");
  CHECK(chat.times == 1);
  CHECK(prompt.text == "[system]S<e><e>[user]<e>a <e><e><e>[assistant]b<e><e>[tool]c<e><e>");
  const auto user = prompt.text.find("[user]") + 6, tool = prompt.text.find("[tool]") + 6;
  const auto assistant = prompt.text.find("[assistant]") + 11;
  CHECK(prompt.plain_at == std::vector<std::size_t>{9, user, user + 5, user + 8, assistant + 1, tool + 1});
  CHECK_THROWS_WITH_AS(chat(R"([{"role":"user<e>","content":"a"},{"role":"assistant","content":"b"}])"),
                       "a `role` must not have a special token", failure);
  chat.continues = true;
  const auto begun = chat(R"([{"role":"user","content":"<e>"},{"role":"assistant","content":"<e>"}])");
  CHECK(begun.plain_at == std::vector<std::size_t>{6});
}

TEST_CASE("Special tokens in the arguments of a call are text") {
  counted_template chat("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
                        "{{ c.function.arguments | tojson(ensure_ascii=True) }}{% endfor %}<e>{% endfor %}");
  chat.specials = ends_in;
  const auto prompt = chat(R"([{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function",)"
                           R"("function":{"name":"f","arguments":{"x":["\u00e9<e>",1]}}}]}])");
  CHECK(prompt.text == R"({"x": ["\u00e9<e>", 1]}<e>)");
  CHECK(prompt.plain_at == std::vector<std::size_t>{prompt.text.find("<e>")});
}

TEST_CASE("Templates still find the reasoning in what an assistant said, though its tokens are special") {
  counted_template chat("{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}");
  chat.specials = [](std::string_view text) {
    std::vector<std::string_view> specials;
    for (auto at = text.find('<'); at != text.npos; at = text.find('<', at + 1))
      specials.push_back(text.substr(at, text.find('>', at) + 1 - at));
    return specials;
  };
  CHECK(chat(R"([{"role":"assistant","content":"<think>a</think>b<e>"}])").plain_at == std::vector<std::size_t>{1});
  CHECK(chat(R"([{"role":"assistant","content":"<think>"}])").plain_at.empty());
  CHECK(chat(R"([{"role":"user","content":"<think>"}])").plain_at == std::vector<std::size_t>{0});
}

TEST_CASE("A special token that a template cuts off makes no text of the template's own") {
  counted_template chat("{% for m in messages %}{{ m.content.split('<f>')[0] }}<e>{% endfor %}");
  chat.specials = [](std::string_view text) {
    std::vector<std::string_view> specials;
    for (auto at = text.find('<'); at != text.npos; at = text.find('<', at + 1))
      specials.push_back(text.substr(at, 3));
    return specials;
  };
  const auto prompt = chat(R"([{"role":"user","content":"a<f>b"},{"role":"user","content":"<g>"}])");
  CHECK(prompt.text == "a<e><g><e>");
  CHECK(prompt.plain_at == std::vector<std::size_t>{4});
}

TEST_CASE("A template's refusal quotes texts without marks") {
  counted_template chat("{{ raise_exception('no: ' + messages[0].content) }}");
  chat.specials = ends_in;
  CHECK_THROWS_WITH_AS(chat(R"([{"role":"user","content":"a<e>"}])"), "no: a<e>", failure);
}

TEST_CASE("Names of members that spell special tokens are text") {
  counted_template chat(
    "{% for m in messages %}{{ m.content }}{{ m.tool_calls[0].function.arguments | tojson }}<e>{% endfor %}");
  chat.specials = ends_in;
  const auto prompt = chat(R"([{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function",)"
                           R"("function":{"name":"f","arguments":{"<e>":1}}}]}])");
  CHECK(prompt.text == R"({"<e>": 1}<e>)");
  CHECK(prompt.plain_at == std::vector<std::size_t>{2});
}

TEST_CASE("Marks of special tokens stay with texts that are moved, or written as JSON") {
  counted_template picky("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}"
                         "[{{ m.role }}]{{ m.content | tojson }}<e>{% endfor %}");
  picky.specials = ends_in;
  const auto prompt = picky(R"([{"role":"user","content":"x"},{"role":"assistant","content":"y"},)"
                            R"({"role":"tool","content":"\"<e>"}])");
  CHECK(prompt.text == R"([user]"x"<e>[assistant]"y"<e>[user]"Result:\n\"<e>"<e>)");
  CHECK(prompt.plain_at == std::vector<std::size_t>{prompt.text.rfind(R"(\"<e>)") + 2});
}

TEST_CASE("a prompt that has all texts is rendered once, and nothing is said") {
  counted_template all(shows_all);
  for (const auto* messages : {late_system, called}) {
    const auto prompt = all(messages);
    CHECK(prompt.notes.empty());
    CHECK(all.times == 1);
  }
  CHECK(all(R"([{"role":"user","content":"  Hi.\n"},{"role":"assistant","content":"<think>Hm.</think>\n Yes. "}])")
          .notes.empty());
  CHECK(all.times == 1);
  counted_template quoted("{% for m in messages %}{{ m.content | tojson }}{% endfor %}");
  CHECK(quoted(R"([{"role":"user","content":"\"a\"\n\tb"}])").notes.empty());
  CHECK(quoted.times == 1);
}

TEST_CASE("texts in another order, and reasoning that is left out, are no loss") {
  counted_template behind("{% for m in messages | reverse %}{{ m.content.split('|')[-1] }} {% endfor %}");
  const auto prompt = behind(R"([{"role":"user","content":"Hm.|one"},{"role":"user","content":"two"}])");
  CHECK(prompt.text == "two one ");
  CHECK(prompt.notes.empty());
}

TEST_CASE("a text that a template leaves out is moved as one that it refuses") {
  counted_template lost(late_system_is_lost);
  const auto prompt = lost(late_system);
  CHECK(prompt.text == "[system]Be kind.\n[user]Hi.\n[assistant]Yes?\n[user]Nine left.\nGo on.\n");
  REQUIRE(prompt.notes.size() == 1);
  CHECK(prompt.notes[0].ends_with(": system messages behind others are users'"));
  counted_template refused("{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
                           "{{ raise_exception('no') }}{% endif %}[{{ m.role }}]{{ m.content }}\n{% endfor %}");
  CHECK(refused(late_system).text == prompt.text);
  CHECK(refused(late_system).notes == prompt.notes);
}

TEST_CASE("where a template knows no tools, calls and results are texts") {
  counted_template none(no_tools);
  const auto prompt = none(called);
  CHECK(prompt.text ==
        "[user]Hi.\n[assistant]I look.\n{\"name\": \"f\", \"arguments\": {\"x\": \"deep\"}}\n"
        "[user]Result of f:\nIt says \"so\"\n.\n[user]Be kind.\n");
  CHECK(prompt.notes.size() == 1);
}

TEST_CASE("a user's text behind a result joins it where roles must alternate, and ids may have to be short") {
  counted_template strict("{% set n = namespace(i=0) %}{% for m in messages %}"
                          "{% if m.role != 'tool' and not m.tool_calls %}{% if (m.role == 'user') != (n.i % 2 == 0) %}"
                          "{{ raise_exception('alternate') }}{% endif %}{% set n.i = n.i + 1 %}{% endif %}"
                          "{% if m.tool_calls %}{% for c in m.tool_calls %}{% if c.id | length != 9 %}"
                          "{{ raise_exception('ids') }}{% endif %}CALL {{ c.id }} {{ c.function | tojson }}\n"
                          "{% endfor %}{% elif m.role == 'tool' %}RESULT {{ m.tool_call_id }} {{ m.content }}\n"
                          "{% else %}[{{ m.role }}]{{ m.content }}\n{% endif %}{% endfor %}");
  const auto prompt = strict(R"([{"role":"user","content":"Hi."},{"role":"assistant","content":null,"tool_calls":[
    {"id":"toolu_01ABCDEFG","type":"function","function":{"name":"f","arguments":{"x":1}}},
    {"id":"toolu_02-ABCDEFG","type":"function","function":{"name":"g","arguments":{}}}]},
    {"role":"tool","tool_call_id":"toolu_01ABCDEFG","content":"one"},
    {"role":"tool","tool_call_id":"toolu_02-ABCDEFG","content":"two"},{"role":"user","content":"Be kind."}])");
  CHECK(prompt.text ==
        "[user]Hi.\nCALL 01ABCDEFG {\"name\": \"f\", \"arguments\": {\"x\": 1}}\n"
        "CALL 02ABCDEFG {\"name\": \"g\", \"arguments\": {}}\nRESULT 01ABCDEFG one\nRESULT 02ABCDEFG two\n"
        "Be kind.\n");
  CHECK(strict(called).text.find("[assistant]I look.\nCALL 0000call1") != std::string::npos);
}

TEST_CASE("what cannot be mended is told, or refused with the template's first sentence") {
  counted_template first_only("{{ messages[0].content }}");
  const auto prompt = first_only(R"([{"role":"user","content":"Hi."},{"role":"assistant","content":"Yes?"}])");
  CHECK(prompt.text == "Hi.");
  CHECK(prompt.notes == std::vector<std::string>{"the chat template leaves out `messages[1]`"});
  counted_template never("{{ raise_exception('never ' ~ messages | length) }}");
  CHECK_THROWS_WITH(never(late_system), "never 5");
  counted_template shows_none("{{ 'z' * 5 }}"); // deliberately
  CHECK(shows_none(called).text == "zzzzz");
  CHECK(shows_none(called).notes.empty());
}

TEST_CASE("tools that a template does not show are told") {
  const auto tools = parsed(R"([{"type":"function","function":{"name":"read","description":"Reads \"it\".",
    "parameters":{}}},{"type":"function","function":{"name":"write","parameters":{}}},{"name":"plain"}])");
  const auto note = [&](std::string_view source, const jinja::value& given) {
    const auto is = chat_template::parse(source, "<s>", "</s>");
    const auto messages = parsed(R"([{"role":"user","content":"Please read, write, plain."}])");
    const auto render = [&](const jinja::value& those) { return is.render({.messages = messages, .tools = those}); };
    return note_on_tools(given, render(given), render).value_or("");
  };
  const std::string all = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}";
  CHECK(note(all, tools).empty());
  CHECK(note(all, nullptr).empty());
  CHECK(note(shows_all, nullptr).empty());
  CHECK(note("{% for t in tools | reverse %}{{ (t.function or t).name | upper }} {% endfor %}", tools).empty());
  CHECK(note(shows_all, tools) == "the chat template shows none of the `tools`");
  CHECK(note("{% for t in tools if t.function %}{{ t.function.name }}{% endfor %}", tools) ==
        "the chat template leaves out `tools[2]`");
}

TEST_CASE("ids of calls that end alike stay apart when they are shortened") {
  const auto messages = parsed(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"a-123456789","function":
    {"name":"f"}},{"id":"b-123456789","function":{"name":"f"}},{"id":"c","function":{"name":"f"}}]}])");
  std::set<std::string> ids;
  const auto all = moved(messages.seq().items, {.short_ids = true});
  for (const auto& call : calls_of_message(all.front())) {
    const std::string id(text_of(call, "id"));
    CHECK(id.size() == 9);
    ids.insert(id);
  }
  CHECK(ids.size() == 3);
}

TEST_CASE("long conversations that cannot be mended take few renderings") {
  std::string messages = "[";
  for (int i = 0; i < 9000; ++i)
    messages += std::string(i ? "," : "") + R"({"role":"user","content":"some text"})";
  counted_template first_only("{{ messages[0].content }}");
  first_only(messages + "]");
  CHECK(first_only.times <= 20);
}

// -- published templates -------------------------------------------------------

namespace {

/// Every kind of turn that clients send, by what it is.
std::map<std::string, std::string> turns() {
  const auto message = [](const std::string& role, const std::string& text) {
    return R"({"role":")" + role + R"(","content":")" + text + R"("},)";
  };
  const auto call = [](const std::string& text, const std::vector<std::string>& ids) {
    std::string calls;
    for (const auto& id : ids)
      calls += (calls.empty() ? "" : ",") + (R"({"id":"call_0123456789)" + id) +
        R"(","type":"function","function":{"name":"read","arguments":{"path":"file of )" + id + R"("}}})";
    return R"({"role":"assistant","content":)" + (text.empty() ? "null" : '"' + text + '"') + R"(,"tool_calls":[)" +
      calls + "]},";
  };
  const auto result = [](const std::string& text, const std::string& id) {
    return R"({"role":"tool","name":"read","tool_call_id":"call_0123456789)" + id + R"(","content":")" + text +
      R"("},)";
  };
  const auto user = message("user", "What is asked first?"), again = message("user", "Remember to be kind."),
             system = message("system", "Be brief, said the system."),
             late = message("system", "Nine tokens are left."), answer = message("assistant", "The answer is one."),
             one = result("The file says hello.", "a"), two = result(R"(The other \"says\"\n bye.)", "b");
  return {
    {"user", user},
    {"system", system + user},
    {"only a system", system},
    {"developer", message("developer", "Be brief, said the developer.") + user},
    {"two systems", system + late + user},
    {"several turns", system + user + answer + again},
    {"system in the middle", system + user + answer + late + again},
    {"system in the middle alone", user + answer + late + again},
    {"system behind the user", user + late},
    {"call", system + user + call("", {"a"}) + one},
    {"call and text", system + user + call("Let me look.", {"a"}) + one},
    {"two calls", user + call("", {"a", "b"}) + one + two},
    {"answered call", system + user + call("Let me look.", {"a"}) + one + answer + again},
    {"text behind a result", system + user + call("", {"a"}) + one + again},
    {"text behind two results", user + call("", {"a", "b"}) + one + two + again},
    {"text behind a result, and on", system + user + call("Let me look.", {"a"}) + one + again + call("", {"b"}) + two},
    {"system behind a result", system + user + call("", {"a"}) + one + late},
    {"system between call and result", system + user + call("", {"a"}) + late + one},
    {"two users", system + user + again},
    {"two assistants", user + answer + message("assistant", "Or it is two.") + again},
    {"assistant, then call", user + answer + call("", {"a"}) + one},
    {"assistant first", answer + again},
    {"system, assistant first", system + answer + again},
    {"assistant last", user + answer},
    {"result without a call", user + one},
    {"call without a result", user + call("", {"a"}) + again},
  };
}

/// The message's text in the prompt, perhaps written as JSON.
bool has_text(const std::string& prompt, std::string_view text) {
  auto meter = jinja::meter::unlimited();
  const auto json = jinja::to_json(meter, jinja::value(text));
  return prompt.find(text) != std::string::npos || prompt.find(json.substr(1, json.size() - 2)) != std::string::npos;
}

} // namespace

TEST_CASE("published templates show every text of every kind of turn") {
  const fs::path folder = published_templates();
  if (folder.empty())
    return; // this machine lacks them
  const auto tools = parsed(R"([{"type":"function","function":{"name":"read","description":"d","parameters":
    {"type":"object","properties":{"path":{"type":"string","description":"p"}},"required":["path"]}}}])");
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() != ".jinja")
      continue;
    CAPTURE(file.path().stem().string());
    std::ifstream in(file.path());
    counted_template rendered(std::string(std::istreambuf_iterator<char>(in), {}));
    const bool needs_tools = file.path().stem().string().ends_with("tool_use");
    for (const auto& [what, list] : turns())
      for (const bool offered : {true, false}) {
        if (!offered && needs_tools)
          continue; // a folder has another template for these
        CAPTURE(what);
        CAPTURE(offered);
        const auto messages = "[" + list.substr(0, list.size() - 1) + "]";
        const auto given = parsed(messages);
        const auto prompt = rendered(messages, offered ? tools : jinja::value(nullptr));
        for (const auto& message : given.seq().items) {
          CHECK(has_text(prompt.text, text_of(message, "content")));
          for (const auto& call : calls_of_message(message))
            CHECK(has_text(prompt.text, text_of(*arguments_of_call(call), "path")));
        }
      }
  }
}
