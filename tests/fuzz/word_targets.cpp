// What a model's words come from and go through: tokenizers, chat templates, and the answers that are taken apart.
#include "runtime/chat/chat_template.hpp"
#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/chat_output_parser.hpp"
#include "runtime/chat/output/find_chat_format.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/test_data.hpp"

#include <algorithm>

namespace troupe::test {

namespace fs = std::filesystem;

namespace {

const std::string some_text = "The fox's  tail, 12\n\t<s>\xc3\xa9\xe6\x97\xa5\xf0\x9f\x91\x8d\xcc\x81 <|im_end|>ab";

/// Encodes and decodes a text, and checks what every tokenizer promises.
std::string use_tokenizer(const std::shared_ptr<const tokenizer>& tokens, std::string_view text) {
  std::vector<token_id> ids;
  const auto why = refusal_of([&] {
    ids = tokens->encode(text, true);
    if (!is_utf8(text))
      broken("a text that is not UTF-8 and is encoded");
    const auto around = tokens->encode("", true).size();
    if (tokens->encode_cut(text, 5).size() > std::max<std::size_t>(around, 5))
      broken("a text that was to be cut and is longer");
    tokens->encode_plain(text, {});
    tokens->encode_pair(text, "b", 3);
  });
  for (const auto id : ids)
    if (id < 0 || static_cast<std::size_t>(id) >= tokens->vocab_size())
      broken("an id outside of the vocabulary");
  for (token_id id = 0; id < static_cast<token_id>(std::min<std::size_t>(tokens->vocab_size(), 40)); ++id)
    ids.push_back(id);
  for (const bool skip : {false, true}) {
    const auto whole = tokens->decode(ids, skip);
    stream_decoder stream(tokens, skip);
    std::string streamed;
    for (const auto id : ids) {
      streamed += stream.push(id);
      if (!is_utf8(streamed))
        broken("a piece of a text that is not UTF-8");
    }
    if (streamed + stream.finish() != whole)
      broken("a text that differs when it is streamed");
  }
  return "used " + why;
}

std::string tokenizer_json(std::string_view input) {
  const auto text = part_of(input, "text");
  return use_tokenizer(tokenizer::parse(first_part(input), "tokenizer.json"), text.value_or(some_text));
}

texts tokenizer_seeds() {
  texts seeds;
  const auto file = json::document::parse(data_file("tokenizers.json"), "tokenizers.json");
  const auto models = *json::find(file.root(), "models");
  for (json::value variant : json::find(file.root(), "tokenizers")->get_array()) {
    std::string description = simdjson::minify(*json::find(variant, "parts"));
    description.back() = ',';
    seeds.push_back(description + "\"model\":" +
                    std::string(simdjson::minify(*json::find(models, *json::find(variant, "model")))) + "}");
  }
  return seeds;
}

/// A folder with a tokenizer of another format, and with its tokenizer_config.json.
std::string older_tokenizer(std::string_view input, const std::string& file) {
  const auto path = fuzz_file("words-" + file + "/" + file, first_part(input));
  fuzz_file("words-" + file + "/tokenizer_config.json", part_of(input, "tokenizer_config").value_or("{}"));
  return use_tokenizer(tokenizer::load(path.parent_path()), some_text);
}

std::string sentencepiece(std::string_view input) { return older_tokenizer(input, "tokenizer.model"); }
std::string tiktoken(std::string_view input) { return older_tokenizer(input, "cl100k_base.tiktoken"); }

texts sentencepiece_seeds() {
  texts seeds;
  for (const auto* name : {"unigram", "unigram-rules", "unigram-symbols", "unigram-bytes", "bpe", "bpe-bytes"})
    seeds.push_back(data_file(fs::path("older_tokenizers") / name / "tokenizer.model"));
  seeds.push_back(
    seeds.front() + "\n=== tokenizer_config\n" +
    R"({"add_bos_token":true,"added_tokens_decoder":{"7":{"content":"<x>","special":true}},"bos_token":"<x>"})");
  return seeds;
}

texts tiktoken_seeds() {
  const auto whole = data_file("older_tokenizers/cl100k_base/cl100k_base.tiktoken");
  return {whole, whole.substr(0, whole.find('\n', 300) + 1)};
}

/// Parses a template and renders a conversation. The limits are small: what costs more than they say is a fault.
std::string rendered(std::string_view input) {
  static const auto file = json::document::parse(data_file("jinja.json"), "jinja.json");
  static const auto globals = jinja::from_json(file.root().at_key("globals"));
  find_chat_format(input);
  const auto program = jinja::program::parse(input);
  const jinja::render_limits limits{.steps = 4 << 20, .bytes = 4 << 20, .time = std::chrono::milliseconds(100'000)};
  auto outcome = refusal_of([&] {
    if (program.render(globals, limits).size() > limits.bytes)
      broken("a rendering that is larger than its limit");
  });
  if (outcome.empty()) // what asks a template a few short messages, within limits of its own
    outcome = refusal_of([&] { chat_template::parse(input, "<s>", "</s>").behind_answer(); });
  return "parsed " + outcome;
}

texts template_seeds() {
  texts seeds;
  const auto file = json::document::parse(data_file("jinja.json"), "jinja.json");
  for (json::value one : file.root().at_key("cases").get_array())
    seeds.emplace_back(one.at_key("template").get_string().value());
  for (const auto* group : {"golden", "families"})
    for (const auto& entry : fs::directory_iterator(fs::path(test_data()) / group))
      if (const auto name = fs::path(group) / entry.path().filename() / "chat_template.jinja";
          fs::exists(fs::path(test_data()) / name))
        seeds.push_back(data_file(name));
  return seeds;
}

const texts& template_words() {
  static const texts words{"{{ ",
                           " }}",
                           "{% ",
                           "{%- ",
                           " %}",
                           "-%}",
                           "{#",
                           "#}",
                           "{% if x %}",
                           "{% endif %}",
                           "{% for m in messages %}",
                           "{% endfor %}",
                           "{% set ns = namespace(a=[]) %}",
                           "{% macro f(a, b=1) %}",
                           "{% endmacro %}",
                           "{% call f() %}",
                           "{% endcall %}",
                           "{% filter upper %}",
                           "{% endfilter %}",
                           "{% raw %}",
                           "{% endraw %}",
                           "{% break %}",
                           "{% continue %}",
                           "{% generation %}",
                           "{% endgeneration %}",
                           " recursive",
                           "loop.",
                           "loop(xs)",
                           "loop.cycle(1, 2)",
                           " | tojson",
                           " | tojson(indent=4)",
                           " | join(', ')",
                           " | map(attribute='a.b')",
                           " | selectattr('a', 'equalto', 1)",
                           " | groupby('age')",
                           " | sort(reverse=true)",
                           " | unique",
                           " | batch(3, 'x')",
                           " | slice(3)",
                           " | replace('a', 'bb')",
                           " | round(2, 'floor')",
                           " | format(1, 's')",
                           " | indent(4, true)",
                           " | wordwrap(3)",
                           " | truncate(5)",
                           " | center(80)",
                           " | int",
                           " | float",
                           " | xmlattr",
                           " | urlize",
                           " | striptags",
                           " | dictsort",
                           " | sum",
                           " | list",
                           " is defined",
                           " is mapping",
                           " not in ",
                           ".split(' ')",
                           ".items()",
                           ".strip()",
                           ".format('a')",
                           "'%5.3d' % 3",
                           "range(100)",
                           "[::-1]",
                           "[1:2]",
                           " ~ ",
                           " ** ",
                           " // ",
                           " if a else b",
                           "strftime_now('%Y')",
                           "raise_exception('x')",
                           "dict(a=1)",
                           "lipsum(2)",
                           "cycler(1)",
                           "joiner()",
                           "9223372036854775807",
                           "1e308",
                           "'",
                           "\"",
                           "(",
                           ")",
                           "{'a': ",
                           "messages[0]['content']",
                           "tools",
                           "\\x41",
                           "\xc3\x9f"};
  return words;
}

struct answer {
  std::string content, reasoning, calls;
  bool operator==(const answer&) const = default;
};

answer taken_apart(const std::shared_ptr<const chat_output>& what, std::string_view text, std::size_t piece) {
  chat_output_parser parser(what, "abcdefghijklmnopqrstuvwx");
  answer result;
  std::size_t begun = 0;
  const auto collect = [&](const output_deltas& deltas) {
    for (const auto& delta : deltas)
      switch (delta.what) {
        case output_delta::kind::content: result.content += delta.text; break;
        case output_delta::kind::reasoning: result.reasoning += delta.text; break;
        case output_delta::kind::call_begin:
          if (delta.call != begun++)
            broken("a call that begins out of turn");
          if (!what->find(delta.text))
            broken("a call of a tool that is not there");
          result.calls += "\n" + delta.text + "(";
          break;
        case output_delta::kind::call_arguments:
          if (delta.call + 1 != begun)
            broken("arguments of a call that has not begun, or has ended");
          result.calls += delta.text;
          break;
      }
  };
  for (std::size_t at = 0; at < text.size(); at += piece)
    collect(parser.feed(text.substr(at, piece)));
  collect(parser.finish());
  return result;
}

/// The formats' names in the first line, then an answer.
std::string chat_answer(std::string_view input) {
  const auto line = input.substr(0, input.find('\n'));
  input.remove_prefix(std::min(input.size(), line.size() + 1));
  const auto space = std::min(line.find(' '), line.size());
  const auto what = std::make_shared<chat_output>();
  what->format.calls = find_call_format(line.substr(0, space));
  what->format.reasoning = find_reasoning_format(line.substr(std::min(space + 1, line.size())));
  if (!what->format.calls)
    return "no format";
  what->tools.emplace_back("f", "");
  what->tools.emplace_back("get_weather",
                           R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},)"
                           R"("a":{"type":"array"},"o":{"type":"object"},"n":{"type":"number"}}})");
  const auto whole = taken_apart(what, input, std::max<std::size_t>(input.size(), 1));
  for (const std::size_t piece : {1, 7})
    if (taken_apart(what, input, piece) != whole)
      broken("an answer that depends on how it is cut");
  return std::string(what->format.calls->name()) + (whole.calls.empty() ? " content" : " calls") +
    (whole.reasoning.empty() ? "" : " and reasoning");
}

const texts answers{"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call> x",
                    "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>3</"
                    "parameter>\n</function>\n</tool_call>",
                    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>5</arg_value>\n</tool_call>",
                    "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}]",
                    "[TOOL_CALLS]f[ARGS]{\"a\":1}",
                    "[get_weather(city='a\\'b', days=-1.5e3, a=[1, None, {'k': True}]), f()]",
                    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>",
                    "<think>because</think>{\"name\": \"f\", \"parameters\": {\"a\": 1}}"};

texts answer_seeds() {
  texts seeds;
  for (const auto& calls : call_format_names())
    if (calls != "auto" && calls != "none")
      for (const auto& text : answers)
        seeds.push_back(calls + " none\n" + text);
  for (const auto& reasoning : reasoning_format_names())
    if (reasoning != "auto" && reasoning != "none")
      for (const auto& text : answers)
        seeds.push_back("hermes " + reasoning + "\n" + text);
  return seeds;
}

/// What the formats' marks are made of.
const texts& answer_words() {
  static const texts words = [] {
    texts all{"<think>",
              "</think>",
              "{\"name\": \"f\", \"arguments\": {",
              "}}",
              "get_weather",
              "city",
              "\"",
              "'",
              "\\",
              "<",
              ">",
              "\n",
              " ",
              "[",
              "]",
              "(",
              ")",
              "=",
              ",",
              "None",
              "1e5",
              "\xc3\xa9",
              "\xff",
              "{",
              "}",
              ":"};
    for (const auto& name : call_format_names())
      if (const auto* format = find_call_format(name)) {
        for (const auto marker : format->markers())
          all.emplace_back(marker);
        const auto layout = format->layout();
        for (const auto& text : {layout.section_begin, layout.section_end, layout.separator, layout.trigger})
          if (!text.empty())
            all.push_back(text);
      }
    return all;
  }();
  return words;
}

} // namespace

std::vector<fuzz_target> word_targets() {
  return {{"tokenizer_json", tokenizer_json, tokenizer_seeds},
          {"sentencepiece", sentencepiece, sentencepiece_seeds},
          {"tiktoken", tiktoken, tiktoken_seeds},
          {"template", rendered, template_seeds, template_words},
          {"chat_answer", chat_answer, answer_seeds, answer_words}};
}

} // namespace troupe::test
