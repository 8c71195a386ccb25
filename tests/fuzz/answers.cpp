// Answers questions of differential.py, one JSON object a line on stdin, with one JSON value a line on stdout: null where
// the program refuses what is asked.
//   {"template": TEXT, "globals": {...}}     the rendering
//   {"regex": TEXT, "texts": [...]}          which of them match as a whole
//   {"schema": TEXT, "texts": [...]}         the same of the schema's documents, with members in any order
//   {"schema": TEXT, "walks": SEED}          a few documents that the schema's guide lets a model write
//   {"tokenizer": TEXT, "texts": [...]}      [ids, ids with special tokens, the first ids' text] of each
#include "runtime/chat/jinja/program.hpp"
#include "runtime/guide/guide.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/runtime/guide/vocabulary.hpp"

#include <functional>
#include <iostream>
#include <random>

namespace {

using namespace troupe;
using namespace troupe::guides;

std::string text_of(json::value v) { return std::string(v.get_string().value()); }

std::string list_of(json::value texts, const std::function<std::string(const std::string&)>& answer) {
  std::string result = "[";
  for (const auto text : texts.get_array())
    result += (result.size() > 1 ? "," : "") + answer(text_of(text));
  return result + ']';
}

std::string accepted(const guide_source& source, json::value texts) {
  static const auto vocabulary = test::vocabulary_of();
  const auto guide = compile_guide(source, vocabulary);
  return list_of(texts, [&](const std::string& text) {
    guide_state state(guide);
    return state.advance(text) && state.can_end() ? "true" : "false";
  });
}

/// Documents at random: bytes among those allowed, quotes and ends more often, so that they end.
std::string walks(const guide_source& source, std::uint64_t seed) {
  static const auto vocabulary = test::vocabulary_of();
  const auto guide = compile_guide(source, vocabulary);
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> mask(vocabulary->words());
  std::string result = "[";
  for (int i = 0; i < 5; ++i) {
    guide_state state(guide);
    for (int step = 0; step < 400 && !(state.can_end() && random() % 4 == 0); ++step) {
      state.mask(mask);
      std::string allowed;
      for (int b = 0; b < 128; ++b)
        if (mask[static_cast<std::size_t>(b) / 64] >> (b % 64) & 1)
          allowed += std::string(b == '"' || b == '}' || b == ']' ? 8
                                   : b == ' ' || b == '\n'        ? 0
                                                                  : 1,
                                 static_cast<char>(b));
      if (allowed.empty())
        break;
      state.advance(std::string_view(&allowed[random() % allowed.size()], 1));
    }
    if (state.can_end())
      result += (result.size() > 1 ? "," : "") + json_text(state.text());
  }
  return result + ']';
}

std::string answer(json::value question) {
  if (const auto source = json::find(question, "template"))
    return json_text(jinja::program::parse(text_of(*source)).render(jinja::from_json(question.at_key("globals"))));
  using kind = guide_source::kind;
  if (const auto seed = json::find(question, "walks"))
    return walks({.what = kind::json_schema, .text = text_of(question.at_key("schema"))}, seed->get_uint64().value());
  const json::value texts = question.at_key("texts");
  if (const auto source = json::find(question, "regex"))
    return accepted({.what = kind::regex, .text = text_of(*source)}, texts);
  if (const auto source = json::find(question, "schema"))
    return accepted({.what = kind::json_schema, .text = text_of(*source), .any_order = true}, texts);
  const auto tokens = tokenizer::parse(text_of(question.at_key("tokenizer")), "a tokenizer");
  return list_of(texts, [&](const std::string& text) {
    const auto ids = tokens->encode(text, false);
    return '[' + json_ids(ids) + ',' + json_ids(tokens->encode(text, true)) + ',' +
      json_text(tokens->decode(ids, false)) + ']';
  });
}

} // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::string said = "null";
    try {
      said = answer(json::document::parse(line, "a question").root());
    } catch (const failure& f) {
      std::cerr << f.what() << '\n';
    }
    std::cout << said << std::endl;
  }
}
