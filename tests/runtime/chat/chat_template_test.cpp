
#include "runtime/chat/chat_template.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/runtime/chat/values.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <map>

namespace fs = std::filesystem;
using namespace troupe;
using namespace troupe::test;

namespace {

/// A temporary folder of files.
class folder {
public:
  explicit folder(const std::string& name) : path_(fs::temp_directory_path() / ("troupe-chat-template-" + name)) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~folder() { fs::remove_all(path_); }

  folder& with(const std::string& name, const std::string& text) {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return *this;
  }
  const fs::path& path() const { return path_; }

private:
  fs::path path_;
};

const auto hello = parsed(R"([{"role": "user", "content": "Hello"}])");
const auto a_tool = parsed(R"([{"type": "function", "function": {"name": "f"}}])");

std::string render(const folder& f, jinja::value tools = nullptr, bool prompt = true) {
  const auto loaded = chat_template::load(f.path());
  REQUIRE(loaded);
  return loaded->render({.messages = hello, .tools = std::move(tools), .add_generation_prompt = prompt});
}

error error_of(auto run) {
  try {
    run();
  } catch (const failure& f) {
    return f.what_failed();
  }
  return {errc::internal, "nothing was thrown", {}};
}

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<jinja::value> member(json::value object, std::string_view key) {
  const auto found = json::find(object, key);
  return found ? std::optional(jinja::from_json(*found)) : std::nullopt;
}

constexpr auto greet = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
                       "{% if add_generation_prompt %}>{% endif %}";

} // namespace

TEST_CASE("a folder without a template has none") {
  CHECK_FALSE(chat_template::load(folder("none").path()));
  CHECK_FALSE(
    chat_template::load(folder("config-only").with("tokenizer_config.json", R"({"bos_token": "<s>"})").path()));
}

TEST_CASE("a file takes the place of the folder's templates, with the folder's tokens") {
  folder f("instead");
  f.with("chat_template.jinja", "wrong").with("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  f.with("mine", greet).with("broken", "{% if %}");
  const auto loaded = chat_template::load(f.path(), (f.path() / "mine").string());
  REQUIRE(loaded);
  CHECK(loaded->render({.messages = hello}) == "<s>user: Hello</s>>");
  CHECK(loaded->render({.messages = hello, .tools = a_tool}) == "<s>user: Hello</s>>");
  const auto broken = (f.path() / "broken").string(), none = (f.path() / "none").string();
  CHECK(error_of([&] { chat_template::load(f.path(), broken); }).message.starts_with(broken + ": "));
  CHECK(error_of([&] { chat_template::load(f.path(), none); }).code == errc::not_found);
}

TEST_CASE("a template file comes with the tokens of tokenizer_config.json") {
  folder f("file");
  f.with("chat_template.jinja", greet)
    .with("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  CHECK(render(f) == "<s>user: Hello</s>>");
  CHECK(render(f, nullptr, false) == "<s>user: Hello</s>");
}

TEST_CASE("the template file is preferred to chat_template.json, and that to tokenizer_config.json") {
  folder f("order");
  f.with("tokenizer_config.json", R"({"chat_template": "third"})");
  CHECK(render(f) == "third");
  f.with("chat_template.json", R"({"chat_template": "second"})");
  CHECK(render(f) == "second");
  f.with("chat_template.jinja", "first");
  CHECK(render(f) == "first");
}

TEST_CASE("special tokens that tokenizer_config.json lacks come from special_tokens_map.json") {
  folder f("map");
  f.with("chat_template.jinja", "{{ bos_token }} {{ eos_token }} {{ pad_token is defined }}")
    .with("tokenizer_config.json", R"({"bos_token": "<a>", "eos_token": null})")
    .with("special_tokens_map.json", R"({"bos_token": "<b>", "eos_token": {"content": "</b>"}})");
  CHECK(render(f) == "<a> </b> False");
}

TEST_CASE("the named template tool_use renders requests with tools") {
  folder f("named");
  f.with(
    "tokenizer_config.json",
    R"({"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }} tool"}]})");
  CHECK(render(f) == "plain");
  CHECK(render(f, a_tool) == "1 tool");
  folder file("additional");
  file.with("chat_template.jinja", "plain").with("additional_chat_templates/tool_use.jinja", "with tools");
  CHECK(render(file) == "plain");
  CHECK(render(file, a_tool) == "with tools");
}

TEST_CASE("a broken template is refused at load with its file, line and column") {
  folder f("broken");
  f.with("chat_template.jinja", "fine\n{% if %}");
  auto e = error_of([&] { chat_template::load(f.path()); });
  CHECK(e.code == errc::bad_file);
  CHECK(e.message ==
        (f.path() / "chat_template.jinja").string() +
          ": template line 2, column 7: expected an expression, found '%}'");

  folder named("unnamed");
  named.with("tokenizer_config.json", R"({"chat_template": [{"name": "other", "template": "x"}]})");
  CHECK(error_of([&] { chat_template::load(named.path()); }).message.find("must have a template named \"default\"") !=
        std::string::npos);
  named.with("tokenizer_config.json", R"({"chat_template": 3})");
  CHECK(error_of([&] {
          chat_template::load(named.path());
        }).message.find("must be a string or an array, found an integer") != std::string::npos);
  named.with("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  CHECK(error_of([&] {
          chat_template::load(named.path());
        }).message.find("`template` must be a string, found nothing") != std::string::npos);
  named.with("tokenizer_config.json", R"({"chat_template": "x", "bos_token": 1})");
  CHECK(error_of([&] {
          chat_template::load(named.path());
        }).message.find("`bos_token` must be a string, found an integer") != std::string::npos);
  named.with("tokenizer_config.json", "{");
  CHECK(error_of([&] { chat_template::load(named.path()); }).code == errc::bad_file);
}

TEST_CASE("a template that refuses the messages is quoted in the error") {
  const auto t = chat_template::parse("{{ raise_exception('Roles must alternate!') }}", "", "");
  const auto e = error_of([&] { t.render({.messages = hello}); });
  CHECK(e.code == errc::bad_request);
  CHECK(e.message == "Roles must alternate!");
  CHECK(e.param == "messages");
  const auto other = error_of(
    [&] { chat_template::parse("\n{{ messages[0].content + 1 }}", "", "").render({.messages = hello}); });
  CHECK(other.message == "template line 2, column 24: can only concatenate str (not \"int\") to str");
  CHECK(other.param == "messages");
}

TEST_CASE("further arguments, tools, documents and the clock reach the template") {
  const auto t = chat_template::parse(
    "{{ enable_thinking }}|{{ tools is none }}|{{ documents is none }}|{{ bos_token }}|{{ strftime_now('%Y-%m-%d') }}",
    "<s>", "");
  std::tm now{};
  now.tm_year = 126, now.tm_mon = 6, now.tm_mday = 4;
  CHECK(t.render({.messages = hello, .extra = parsed(R"({"enable_thinking": false})"), .now = now}) ==
        "False|True|True|<s>|2026-07-04");
}

TEST_CASE("chats of the reference checkpoints render as transformers renders them") {
  int cases = 0;
  for (const char* name :
       {"golden/llama-gqa", "golden/llama-mha-tied", "golden/llama-mqa-rope3", "golden/qwen2", "golden/qwen3",
        "golden/mistral-swa", "families/gemma2", "families/gemma3", "families/gpt-neox", "families/gpt-oss",
        "families/gpt2", "families/granite", "families/mixtral", "families/olmo2", "families/opt", "families/phi3",
        "families/qwen3-moe", "families/smollm3"}) {
    const auto path = fs::path(test_data()) / name;
    const auto t = chat_template::load(path);
    REQUIRE(t);
    const auto expected = json::document::load(path / "expected.json");
    const json::array chats = expected.root().at_key("chat").get_array();
    for (auto chat : chats) {
      CAPTURE(std::string(name) + ": " + simdjson::minify(chat));
      chat_template::arguments args{.messages = *member(chat, "messages")};
      if (const auto prompt = json::find(chat, "add_generation_prompt"))
        args.add_generation_prompt = prompt->get_bool();
      args.tools = member(chat, "tools").value_or(nullptr);
      if (const auto rendered = member(chat, "rendered"))
        CHECK(t->render(args) == rendered->str());
      else
        CHECK(error_of([&] { t->render(args); }).code == errc::bad_request);
      ++cases;
    }
  }
  CHECK(cases > 6);
}

TEST_CASE("what published templates write behind an answer begins with the token that ends it") {
  const std::map<std::string, std::string> expected{
    {"Qwen-Qwen2.5-7B-Instruct", "<|im_end|>\n"},
    {"Qwen-Qwen3-0.6B", "<|im_end|>\n"},
    {"Kimi-K2-Instruct", "<|im_end|>"},
    {"ByteDance-Seed-OSS", "<seed:eos>"},
    {"GLM-4.6", ""}, // the next message's role ends it
    {"deepseek-ai-DeepSeek-V3.1", "<｜end▁of▁sentence｜>"},
    {"google-gemma-2-2b-it", "<end_of_turn>\n"},
    {"meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>"},
    {"microsoft-Phi-3.5-mini-instruct", "<|end|>\n</s>"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "</s>"},
  };
  const fs::path folder = published_templates();
  for (const auto& [name, behind] : expected) {
    CAPTURE(name);
    if (!folder.empty())
      CHECK(chat_template::parse(read(folder / (name + ".jinja")), "<s>", "</s>").behind_answer() == behind);
  }
  const auto of = [](const char* source) { return chat_template::parse(source, "<s>", "</s>").behind_answer(); };
  CHECK(of("{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}") == "</s>");
  CHECK(of("{{ raise_exception('no') }}") == "");
  CHECK(of("{% for m in messages if m.role == 'user' %}{{ m.content }}{{ eos_token }}{% endfor %}") == "");
  CHECK(
    of("{% for m in messages %}{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}|{% endfor %}") ==
    "|"); // of parts only
}

TEST_CASE("published templates render as transformers renders them") {
  const fs::path folder = published_templates();
  if (folder.empty()) {
    MESSAGE(
      "skipped: published templates render as transformers renders them (no folder of templates beside the project)");
    return;
  }
  const auto expected = json::document::load(folder / "expected.json");
  const auto root = expected.root();
  int cases = 0;
  const json::object templates = root.at_key("templates").get_object();
  for (auto [name, list] : templates) {
    const auto t = chat_template::parse(read(folder / (std::string(name) + ".jinja")), member(root, "bos_token")->str(),
                                        member(root, "eos_token")->str());
    const json::array all = list.get_array();
    for (auto one : all) {
      CAPTURE(name);
      CAPTURE(member(one, "conversation")->str());
      const json::value conversation =
        root.at_key("conversations").at_key(one.at_key("conversation").get_string().value()).value();
      const chat_template::arguments args{.messages = *member(conversation, "messages"),
                                          .tools = member(conversation, "tools").value_or(nullptr),
                                          .add_generation_prompt = one.at_key("add_generation_prompt").get_bool(),
                                          .extra = *member(root, "kwargs")};
      if (const auto rendered = member(one, "rendered"))
        CHECK(t.render(args) == rendered->str());
      else
        CHECK(error_of([&] { t.render(args); }).code == errc::bad_request);
      ++cases;
    }
  }
  CHECK(cases > 100);
}

TEST_CASE("Templates of multimodal models get text as parts where they show nothing else, and as text where they do") {
  const auto talk = parsed(R"([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": null}, {"role": "user", "content": [{"type": "text", "text": "A"}]}])");
  const auto rendered = [&](const char* source) {
    return chat_template::parse(source, "<s>", "</s>").render({.messages = talk});
  };
  // Loops over parts; over characters of a text it shows nothing.
  CHECK(rendered("{% for m in messages %}[{{ m.role }}{% for p in m.content or [] if p.type == 'image' %}<image>"
                 "{% endfor %}{% for p in (m.content or []) | selectattr('type', 'equalto', 'text') %}|{{ p.text }}"
                 "{% endfor %}]{% endfor %}") == "[system|Be kind.][user|Hello][assistant][user|A]");
  // Looks at the first part, which a text does not have.
  CHECK(rendered("{% for m in messages %}{% if m.content and m.content[0]['type'] == 'image' %}:{% else %}: {% endif %}"
                 "{% for p in m.content or [] %}{{ p['text'] | capitalize }}{% endfor %};{% endfor %}") ==
        ": Be kind.;: Hello;: ;: A;");
  // Takes both.
  CHECK(rendered("{% for m in messages %}{% if m.content is string %}s{{ m.content }}{% elif m.content %}"
                 "p{{ m.content[0].text }}{% endif %};{% endfor %}") == "sBe kind.;sHello;;pA;");
  // Shows neither, or would work for ever.
  CHECK(rendered("{{ messages | length }}") == "4");
  CHECK(rendered("{{ messages[1].content | length }}{{ raise_exception('no') if messages | length == 1 }}") == "5");
  CHECK(rendered("{% if messages | length == 1 %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                 "{% endfor %}{% endif %}{{ messages[1].content }}") == "Hello");
}

TEST_CASE("the storyteller's template: without tools as ever, with tools in Hermes style") {
  const auto file = fs::path(test_data()).parent_path().parent_path() / "examples/storyteller/chat_template.jinja";
  const auto loaded = chat_template::parse(read(file), "<|begin_of_text|>", "<|im_end|>");

  const auto talk = parsed(R"([{"role": "system", "content": " Be kind. "}, {"role": "user", "content": "Hello\n"},
    {"role": "assistant", "content": "Hi!"}, {"role": "user", "content": "A story"}])");
  CHECK(loaded.render({.messages = talk}) ==
        "<|begin_of_text|><|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\nHi!<|im_end|>\n<|im_start|>user\nA story<|im_end|>\n<|im_start|>assistant\n");
  CHECK(loaded.render({.messages = hello, .add_generation_prompt = false}) ==
        "<|begin_of_text|><|im_start|>user\nHello<|im_end|>\n");

  const auto tools = parsed(R"([{"type": "function", "function": {"name": "get_weather", "description": "Weather",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}}}}},
    {"type": "function", "function": {"name": "roll"}}])");
  const auto called = parsed(R"([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}},
      {"id": "2", "type": "function", "function": {"name": "roll", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "cold"}, {"role": "tool", "tool_call_id": "2", "content": "4"}])");
  CHECK(loaded.render({.messages = called, .tools = tools}) ==
        "<|begin_of_text|><|im_start|>system\nBe kind.\n<tools>\n"
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"string\", \"unit\": [\"C\", \"F\"]}}\n"
        "{\"name\": \"roll\", \"arguments\": {}}\n</tools><|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n"
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"roll\", \"arguments\": {}}\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\ncold\n</tool_response>\n<tool_response>\n4\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n");
}
