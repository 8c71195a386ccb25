// Guides: schemas, regular expressions, grammars, structural tags. Compiles a source and checks what guides promise: masks
// that agree with advance, and answers that do not depend on what ran before.
#include "runtime/guide/guide.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/runtime/guide/vocabulary.hpp"

#include <functional>
#include <random>

namespace troupe::test {

namespace {

using namespace guides;
using kind = guide_source::kind;
constexpr guide_limits small_limits{
  .source = 30'000, .expressions = 50'000, .rules = 20'000, .states = 3'000, .items = 400'000, .memory = 24u << 20};

/// Bytes, words of JSON and parts of characters. The last id ends.
const std::shared_ptr<const guide_vocabulary>& words() {
  static const auto all = vocabulary_of({"{\"",  "\": ", "\",", "\"a\":", "true",     "null",     "12",
                                         "-0.5", "},",   "abc", " the",   "aaaaaaaa", "\xc3\xa9", "\xC3",
                                         "\n  ", "<f>",  "</f", "<t>{",   "日本",     "\xE6\x97", "\\u00",
                                         "\\\"", "a\"",  "((",  "))",     "+1"});
  return all;
}

/// Tokens at random among those allowed, and now and then others; `document` is tried first.
void walk(const std::shared_ptr<const guide>& guide, std::string_view document, std::mt19937_64& random) {
  const auto end = static_cast<token_id>(words()->size() - 1);
  guide_state state(guide);
  state.advance(document);
  std::vector<std::uint64_t> mask(words()->words());
  for (int step = 0; step < 40; ++step) {
    state.mask(mask);
    std::vector<token_id> allowed;
    for (token_id id = 0; id < static_cast<token_id>(words()->size()); ++id) {
      const bool is_allowed = (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
      if (is_allowed && !words()->is_end(id))
        allowed.push_back(id);
      if ((step == 0 || random() % 16 == 0) && guide_state(state).advance(id) != is_allowed)
        broken("a mask that does not agree with advance");
    }
    if ((mask.back() >> (end % 64) & 1) != static_cast<std::uint64_t>(state.can_end()))
      broken("a mask that does not agree with can_end");
    const auto forced = state.forced();
    if (!forced.empty() && !guide_state(state).advance(forced))
      broken("forced text that the guide forbids");
    if (allowed.empty())
      return;
    if (!state.advance(allowed[random() % allowed.size()]))
      broken("an allowed token that the guide forbids");
  }
  guide_state again(guide);
  if (!again.advance(state.text()))
    broken("a text that its guide accepts in tokens but not at once");
}

/// A source, and perhaps a document that is tried. What else there is to choose follows from the input.
template <kind What>
std::string compiled(std::string_view input) {
  std::mt19937_64 random(std::hash<std::string_view>()(input));
  const auto text = first_part(input);
  guide_source source{
    .what = What, .text = std::string(text), .any_order = random() % 2 == 0, .compact = random() % 2 == 0};
  if (What == kind::choice)
    source.choices = {source.text.substr(0, source.text.size() / 2), source.text};
  const auto guide = compile_guide(source, words(), small_limits);
  return "compiled " +
    refusal_of([&] { walk(guide, part_of(input, "document").value_or(random() % 2 ? text : ""), random); });
}

texts schema_seeds() {
  return {R"({"type":"object","properties":{"a":{"type":"string","maxLength":9},"b":{"type":"integer",
      "minimum":-3,"maximum":700,"multipleOf":5}},"required":["a"],"additionalProperties":{"type":"boolean"}})"
          "\n=== document\n{\"a\": \"x\", \"b\": 5}",
          R"({"$defs":{"n":{"type":"object","properties":{"v":{"enum":[1,"x",null]},"n":{"anyOf":[
      {"type":"null"},{"$ref":"#/$defs/n"}]}},"required":["v","n"]}},"$ref":"#/$defs/n"})",
          R"({"oneOf":[{"type":"array","prefixItems":[{"const":1}],"items":{"type":"number",
      "exclusiveMinimum":0.5},"minItems":1,"maxItems":3,"contains":{"const":2}},{"not":{"type":["array","object"]}}]})",
          R"({"if":{"properties":{"k":{"const":"a"}},"required":["k"]},"then":{"required":["x"]},
      "else":{"properties":{"y":{"type":"string","format":"date-time","pattern":"^2"}}},"type":"object",
      "patternProperties":{"^p[0-9]+$":{"type":"string","format":"uuid"}},"propertyNames":{"maxLength":6},
      "minProperties":1,"maxProperties":4,"dependentRequired":{"x":["y"]}})",
          R"({"allOf":[{"type":"string","minLength":2},{"pattern":"^(a|b)*c?$"},{"not":{"const":"ab"}}]})",
          R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2,"a"]},"unevaluatedItems":false,"minContains":2})",
          R"({"type":"object","unevaluatedProperties":false,"dependentSchemas":{"a":{"required":["b"]}},
      "anyOf":[{"properties":{"a":{"format":"ipv6"}}},{"$dynamicRef":"#x"}]})"};
}

texts regex_seeds() {
  return {R"((a|b(c[d-z\w])*){2,5}(?:\d{3}|[^\s"]+)?\.x*)", "((a*)*b)*(.*c.{9}d)", R"(^(?=a)\p{L}+(?!b)\b[[:alpha:]]$)",
          R"((?P<n>\u00e9|\x41){0,3}?(?i:ab)++)"};
}

texts grammar_seeds() {
  return {"root ::= (\"a\" item)+ | other{2,3}\nitem ::= [a-z]* \"é\"? root?\nother ::= \"(\" other \")\" | [0-9]\n",
          "start: sum\n?sum: atom | sum (\"+\"|\"-\") atom\natom: NUM | \"(\" sum \")\"\n"
          "NUM: /[0-9]+(\\.[0-9]*)?/\n%ignore /[ \\t]+/\n%import common.WS\n",
          "start: list{\"a\", \",\"} -> x\nlist{x, sep}: x (sep x)* | \"b\"i ~ 2..4\nT.2: \"c\"..\"f\" | %json "
          "{\"type\":\"null\"}\n"};
}

texts tag_seeds() {
  return {R"({"structures":[{"begin":"<f>","schema":{"type":"integer"},"end":"</f>"}],"triggers":["<f"]})",
          R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<t"],"tags":[
      {"begin":"<t>","content":{"type":"json_schema","json_schema":{"type":"array"}},"end":"</t>"}]}})",
          R"({"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"const_string","value":"a"},
      {"type":"or","elements":[{"type":"regex","pattern":"b+"},{"type":"any_text"}]},{"type":"tags_with_separator",
      "separator":",","tags":[{"begin":"(","content":{"type":"grammar","grammar":"root ::= \"x\""},"end":[">"]}]}]
}
})"};
}

const texts& guide_words() {
  static const texts all{"\"type\":",
                         "\"object\"",
                         "\"anyOf\":[",
                         "\"oneOf\":[",
                         "\"allOf\":[",
                         "\"not\":{",
                         "\"$ref\":\"#\"",
                         "\"items\":",
                         "\"properties\":{",
                         "\"required\":[",
                         "\"pattern\":\"^a+$\"",
                         "\"maxLength\":",
                         "\"enum\":[",
                         "\"const\":",
                         "\"format\":\"email\"",
                         "\"uniqueItems\":true",
                         "\"contains\":{}",
                         "null",
                         "true",
                         "{",
                         "}",
                         "[",
                         "]",
                         ",",
                         "(",
                         ")",
                         "*",
                         "+",
                         "?",
                         "{2,900}",
                         "|",
                         "\\p{L}",
                         "[^a]",
                         "(?=",
                         "(?!",
                         "(?i)",
                         "\\b",
                         "^",
                         "$",
                         "::=",
                         "root",
                         "%json {}",
                         "/a/i",
                         "é",
                         "\xE2\x80\xA8",
                         "~ 3..5",
                         "1e400",
                         "-0",
                         "99999999999999999999",
                         "\n=== document\n",
                         "\\u00e9",
                         "\\\""};
  return all;
}

} // namespace

std::vector<fuzz_target> guide_targets() {
  return {{"schema", compiled<kind::json_schema>, schema_seeds, guide_words},
          {"regex", compiled<kind::regex>, regex_seeds, guide_words},
          {"grammar", compiled<kind::grammar>, grammar_seeds, guide_words},
          {"structural_tag", compiled<kind::structural_tag>, tag_seeds, guide_words},
          {"choice", compiled<kind::choice>, regex_seeds, guide_words}};
}

} // namespace troupe::test
