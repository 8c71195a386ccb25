// Guides as a whole: what each kind of source accepts, masks against the definition, forks, forced text, limits that do
// not depend on what ran before. tests/fuzz mutates sources.
#include "runtime/guide/guide.hpp"
#include "tests/runtime/guide/vocabulary.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::guides;

namespace {

using source = guide_source;

/// All bytes, words with and without spaces, pieces of JSON, parts of characters, the same text twice. The last id
/// ends.
std::shared_ptr<const guide_vocabulary> small_vocabulary() {
  static const auto made = test::vocabulary_of({"the",
                                                " the",
                                                "name",
                                                "\"name",
                                                "\"name\":",
                                                "\": \"",
                                                "\":",
                                                " \"",
                                                "\",",
                                                "\", \"",
                                                "{\"",
                                                "}",
                                                "}]",
                                                "},",
                                                "true",
                                                "false",
                                                "null",
                                                "12",
                                                "123",
                                                " 12",
                                                "0.5",
                                                ".5",
                                                "\n",
                                                "\n  ",
                                                "  ",
                                                "   \"",
                                                "é",
                                                " é",
                                                "\xC3",
                                                "\xA9"
                                                "a",
                                                "日本",
                                                "\xE6\x97",
                                                "\xE2\x80\xA8",
                                                "a\xE2\x80\xA9",
                                                "\\n",
                                                "\\\"",
                                                "\\u00",
                                                "text\\n",
                                                "abc\"",
                                                "abc\",",
                                                "the",
                                                "foo-bar",
                                                "x_y",
                                                "ABC",
                                                "<tool>",
                                                "</tool>",
                                                "<to",
                                                "ol>",
                                                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
                                                "bbbb\"}",
                                                "[1",
                                                "[[",
                                                "]]",
                                                "-1",
                                                "e5",
                                                "2020-01-",
                                                "@example.com"});
  return made;
}

std::shared_ptr<const guide> made_guide(const source& s, const guide_limits& limits = {}) {
  return compile_guide(s, small_vocabulary(), limits);
}

bool accepts(const std::shared_ptr<const guide>& g, std::string_view text) {
  guide_state state(g);
  return state.advance(text) && state.can_end();
}
bool accepts(const source& s, std::string_view text) { return accepts(made_guide(s), text); }

source schema(std::string text) { return {.what = source::kind::json_schema, .text = std::move(text)}; }
source regex(std::string text) { return {.what = source::kind::regex, .text = std::move(text)}; }
source grammar_of(std::string text) { return {.what = source::kind::grammar, .text = std::move(text)}; }
source tag(std::string text) { return {.what = source::kind::structural_tag, .text = std::move(text)}; }

std::string refusal(const source& s, const guide_limits& limits = {}) {
  try {
    made_guide(s, limits);
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_request);
    return f.what();
  }
  return "accepted";
}

/// The mask against its definition: a token is allowed exactly if all its bytes are.
void check_mask(const guide_state& state) {
  const auto& v = *small_vocabulary();
  std::vector<std::uint64_t> mask(v.words());
  guide_state(state).mask(mask);
  for (token_id id = 0; id < static_cast<token_id>(v.size()); ++id) {
    const bool allowed = (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
    INFO("behind ", state.text(), ", token ", id, " ", std::string(v.bytes(id)));
    CHECK(allowed == guide_state(state).advance(id));
  }
}

/// Walks at random, checking the masks; every state must have a way to an end.
void walk(const std::shared_ptr<const guide>& g, unsigned seed, int steps) {
  std::mt19937 random(seed);
  const auto& v = *small_vocabulary();
  std::vector<std::uint64_t> mask(v.words());
  guide_state state(g);
  for (int i = 0; i < steps && !state.is_finished(); ++i) {
    check_mask(state);
    state.mask(mask);
    std::vector<token_id> allowed;
    for (token_id id = 0; id < static_cast<token_id>(v.size()); ++id)
      if (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1 && !v.is_end(id))
        allowed.push_back(id);
    REQUIRE((!allowed.empty() || state.can_end()));
    if (allowed.empty())
      break;
    REQUIRE(state.advance(allowed[random() % allowed.size()]));
  }
}

const char* const person = R"({"type":"object","properties":{"name":{"type":"string","maxLength":40},
  "age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"enum":["a","b"]},"minItems":1},
  "mail":{"type":"string","pattern":"^[a-z]+@[a-z.]+$"}},"required":["name"],
  "additionalProperties":{"type":"boolean"}})";

const char* const json_gbnf = R"gbnf(
# JSON without numbers
root   ::= value
value  ::= object | array | string | "true" | "null"
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}"
array  ::= "[" ws ( value
         | value ("," ws value)+ )? "]"
string ::= "\"" ( [^"\\\x00-\x1F] | "\\" ["\\nt] )* "\"" ws
ws     ::= [ \t\n]{0,3}
)gbnf";

const char* const sums = R"lark(
// sums, left-recursive
start: sum
?sum: product | sum ("+"|"-") product -> more
?product: atom | product "*" atom
atom: NUMBER | "(" sum ")" | NAME
NAME: /[a-z]+/i
%import common.INT -> NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
)lark";

const char* const tool_tag = R"({"type":"structural_tag","structures":[{"begin":"<tool>","schema":
  {"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]},"end":"</tool>"}],"triggers":["<to"]})";

} // namespace

TEST_CASE("a guide of each kind accepts what it describes and nothing else") {
  CHECK(accepts({.what = source::kind::json_object}, R"({"a": [1, -2.5e3, "x\u00e9", null, {"b": {}}]})"));
  CHECK(!accepts({.what = source::kind::json_object}, "[1]"));
  CHECK(accepts({.what = source::kind::json_object}, R"({"a":[{"a":1},{"a":1}],"ab":{"ab":{"a":1}},"":0})"));
  for (const std::string twice :
       {R"({"a":1,"a":2})", R"({"":1,"b":2,"":3})", R"({"b":{"a":1,"\u0061":2}})", R"({"b":[{"a":1, "a":2}]})"})
    CHECK_MESSAGE(!accepts({.what = source::kind::json_object}, twice), twice);
  CHECK(accepts(regex("[0-9]{3}-[a-z]+"), "123-abc"));
  CHECK(!accepts(regex("[0-9]{3}-[a-z]+"), "123-"));
  const source choice{.what = source::kind::choice, .choices = {"yes", "no", "not sure"}};
  CHECK(accepts(choice, "no"));
  CHECK(accepts(choice, "not sure"));
  CHECK(!accepts(choice, "not"));
  const auto g = made_guide(grammar_of(json_gbnf));
  CHECK(accepts(g, R"({"a": [true, null, ["x\n"]], "b":{}})"));
  CHECK(!accepts(g, R"({"a": [true,]})"));
  const auto lark = made_guide(grammar_of(sums));
  CHECK(accepts(lark, "1 + 2*(x - 34) * Y"));
  CHECK(!accepts(lark, "1 + * 2"));
  const auto captured = made_guide(
    grammar_of("%llguidance {}\n\nstart: number word\nnumber[capture]: NUMBER\n"
               "NUMBER: /[0-9]{2}/\nword[capture=\"__LIST_APPEND:w\"]: /(?i:ab)(?s:.)/\n"));
  CHECK(accepts(captured, "12aB\n"));
  CHECK(!accepts(captured, "12cB\n"));
  CHECK_THROWS_WITH(made_guide(grammar_of("start[max_tokens=3]: /a/\n")), doctest::Contains("`max_tokens`"));
  const auto tagged = made_guide(tag(tool_tag));
  CHECK(accepts(tagged, "no call, though < and <t occur"));
  CHECK(accepts(tagged, R"(first <tool>{"x": 1}</tool> then <tool>{"x":2}</tool>)"));
  CHECK(!accepts(tagged, "a <tool>{}</tool>"));
  CHECK(!accepts(tagged, "a <tomb"));
  const auto think = made_guide(tag(R"({"type":"structural_tag","format":{"type":"sequence","elements":[
    {"type":"tag","begin":"<think>","content":{"type":"any_text"},"end":"</think>"},
    {"type":"regex","pattern":"[0-9]+"}]}})"));
  CHECK(accepts(think, "<think>a < b </thin</think>42"));
  CHECK(!accepts(think, "<think>a</think>b</think>42"));
}

TEST_CASE("recursion at either end and ambiguity cost no more than the text") {
  const auto right = made_guide(grammar_of("root ::= item root | \"\"\nitem ::= \"a\" item? \"b\""));
  guide_state state(right);
  for (int i = 0; i < 3000; ++i)
    REQUIRE(state.advance(std::string_view("ab")));
  CHECK(state.can_end());
  const auto ambiguous = made_guide(grammar_of("root ::= root root | \"a\" | \"(\" root \")\""));
  guide_state many(ambiguous);
  REQUIRE(many.advance(std::string(60, 'a')));
  CHECK(many.can_end());
  CHECK(!many.advance(std::string_view(")")));
}

TEST_CASE("masks agree with advance, token by token, in every kind of guide") {
  const source sources[] = {schema(person),
                            {.what = source::kind::json_object},
                            {.what = source::kind::json_object, .compact = true},
                            regex("([a-z]{2,60}|[^\"]*x)y?"),
                            regex(".*"),
                            regex("[A-Za-z0-9_-]{1,50}"),
                            grammar_of(json_gbnf),
                            grammar_of(sums),
                            tag(tool_tag),
                            {.what = source::kind::choice, .choices = {"the name", "the", "é", "日本語"}},
                            schema(R"({"type":"string","minLength":2,"maxLength":41})"),
                            schema(R"({"type":"string","format":"date-time"})"),
                            schema(R"({"type":"string","format":"email"})")};
  unsigned seed = 1;
  for (const auto& s : sources) {
    const auto g = made_guide(s);
    for (int i = 0; i < 3; ++i)
      walk(g, seed++, 12);
  }
}

TEST_CASE("a state is a value: forks go their own ways") {
  guide_state state(made_guide(schema(person)));
  REQUIRE(state.advance(std::string_view(R"({"name": ")")));
  auto fork = state;
  CHECK(fork.advance(std::string_view("a\", \"zoo\": true}")));
  CHECK(fork.can_end());
  CHECK(fork.is_finished());
  CHECK(!state.can_end());
  CHECK(state.advance(std::string_view("b\"}")));
  const auto end = small_vocabulary()->end_tokens().front();
  CHECK(state.advance(end));
  CHECK(state.is_finished());
  CHECK(!state.advance(end));
  CHECK(state.text() == R"({"name": "b"})");
}

TEST_CASE("text without a choice is forced") {
  guide_state state(made_guide({.what = source::kind::json_schema,
                                .text = R"({"type":"object","properties":{"colour":{"enum":["red","reddish"]}},
                                "required":["colour"],"additionalProperties":false})",
                                .compact = true}));
  CHECK(state.forced() == "{\"colour\":\"red");
  REQUIRE(state.advance(state.forced()));
  CHECK(state.forced().empty());
  REQUIRE(state.advance(std::string_view("d")));
  CHECK(state.forced() == "ish\"}");
}

TEST_CASE("a rejected text leaves the state as it was, and tells where") {
  guide_state state(made_guide(regex("abc+")));
  std::size_t taken = 9;
  CHECK(!state.advance("abx", &taken));
  CHECK(taken == 2);
  CHECK(state.text().empty());
  CHECK(state.advance("abc", &taken));
  CHECK(taken == 3);
}

TEST_CASE("limits are met at the same place whatever ran before") {
  const guide_limits limits{.states = 400};
  const auto run = [&](const std::shared_ptr<const guide>& g, const std::string& text) {
    guide_state state(g);
    std::size_t n = 0;
    try {
      for (; n < text.size(); ++n)
        if (!state.advance(std::string_view(text).substr(n, 1)))
          return "rejected " + std::to_string(n);
    } catch (const failure& f) {
      return std::to_string(n) + " " + f.what();
    }
    return std::string("taken");
  };
  const auto source = regex("(a|b)*a(a|b){9}c|x{1,5000}");
  std::mt19937 random(3);
  std::string first, second;
  for (int i = 0; i < 3000; ++i) {
    first += random() % 2 ? 'a' : 'b';
    second += random() % 2 ? 'a' : 'b';
  }
  const auto shared = made_guide(source, limits);
  const auto a = run(shared, first), b = run(shared, second), c = run(shared, std::string(300, 'x'));
  CHECK(a == run(made_guide(source, limits), first));
  CHECK(b == run(made_guide(source, limits), second));
  CHECK(c == "taken");
  CHECK(a == run(shared, first));
  CHECK(a.find("too complex") != std::string::npos);
}

TEST_CASE("an automaton that other texts filled is built anew, without a difference to be seen") {
  const guide_limits limits{.states = 300};
  const auto g = made_guide(regex("x{1,100}|y{1,100}|z{1,100}|w{1,100}"), limits);
  guide_state state(g);
  REQUIRE(state.advance(std::string_view("xxxxx")));
  for (const char other : {'y', 'z', 'w', 'y', 'z', 'w'}) {
    CHECK(accepts(g, std::string(100, other)));
    REQUIRE(state.advance(std::string_view("x")));
    CHECK(state.can_end());
    check_mask(state);
  }
  CHECK(state.text() == std::string(11, 'x'));
}

TEST_CASE("hostile sources are refused or bounded, with a sentence") {
  CHECK(refusal(regex(std::string(2'000'000, 'a'))).find("larger than") != std::string::npos);
  CHECK(refusal(grammar_of("root ::= " + std::string(5000, '(') + "\"a\"" + std::string(5000, ')'))).find("nested") !=
        std::string::npos);
  CHECK(refusal(grammar_of("root ::= \"a\" other")).find("`other`") != std::string::npos);
  CHECK(refusal(grammar_of("root ::= \"a\" root")).find("allows no text") != std::string::npos);
  CHECK(refusal(grammar_of("start: <|end|>")).find("line 1") != std::string::npos);
  for (const auto* cut : {"root ::= \"\\", "root ::= [\\", "root ::= [a-\\", "root ::= [a", "start: \"\\",
                          "start: \"a\"..\"\\", "start: /\\", "start: /a\\", "start: \"a\".."})
    CHECK_MESSAGE(refusal(grammar_of(cut)).find("line 1") != std::string::npos, cut);
  CHECK(refusal(grammar_of("root ::= “a”")) == "the GBNF grammar (line 1) has an unexpected `“`");
  CHECK(refusal(grammar_of("start: \"a\" é")) == "the Lark grammar (line 1) has an unexpected `é`");
  CHECK(refusal(tag("{}")) != "accepted");
  CHECK(refusal({.what = source::kind::choice}).find("allows no text") != std::string::npos);
  std::string nested = R"({"type":"string","minLength":1})";
  for (int i = 0; i < 12; ++i) // each level asks whether its branches overlap
    nested = R"({"oneOf":[)" + nested + R"(,{"properties":{"a":)" + std::to_string(i).insert(0, "{\"const\":") +
      R"(}}}]})";
  CHECK_NOTHROW(refusal(schema(nested)));
  CHECK(accepts(regex("(a*)*b"), std::string(2000, 'a') + "b"));
  const auto wide = made_guide(regex("(x+x+)+y|[ab]*a[ab]{200}"));
  guide_state state(wide);
  try {
    std::mt19937 random(9);
    for (int i = 0; i < 5000; ++i)
      state.advance(std::string_view(random() % 2 ? "a" : "b"));
  } catch (const failure& f) {
    CHECK(std::string(f.what()).find("too complex") != std::string::npos);
  }
}
