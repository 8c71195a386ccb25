// Values that must differ: equal ones are told in any spelling, and no text that a mask allows leads to a dead end.
#include "runtime/guide/guide.hpp"
#include "tests/rounds.hpp"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::guides;

namespace {

/// Bytes, and tokens with several values or ends of values in them.
std::shared_ptr<const guide_vocabulary> telling_vocabulary() {
  std::vector<guide_vocabulary::entry> entries;
  for (token_id b = 0; b < 256; ++b)
    entries.push_back({b, std::string(1, static_cast<char>(b))});
  for (const auto* text :
       {"true", "false", "null",  ",true", "true,",   "\",\"", "\"]", "\":", "},{", "10", "12",      "1,1",
        "1,2",  ",1,",   "\"a\"", "a\"",   "{\"k\":", "[[",    "]]",  "],[", "0.5", "-0", "\\u0061", ":1,\"a\":"})
    entries.push_back({static_cast<token_id>(entries.size()) + 1, text});
  const auto size = entries.size() + 1;
  return std::make_shared<const guide_vocabulary>(std::move(entries), std::vector<token_id>{256}, size);
}

const auto& telling() {
  static const auto vocabulary = telling_vocabulary();
  return vocabulary;
}

std::shared_ptr<const guide> telling_guide(const std::string& schema, bool any_order = false) {
  return compile_guide(
    {.what = guide_source::kind::json_schema, .text = schema, .any_order = any_order, .compact = true}, telling());
}

bool accepts_text(const std::shared_ptr<const guide>& g, std::string_view text) {
  guide_state state(g);
  return state.advance(text) && state.can_end();
}

std::string array_of(const std::string& items, const std::string& more = "") {
  return R"({"type":"array","uniqueItems":true,"items":)" + items + more + "}";
}

} // namespace

TEST_CASE("values are equal whatever their spelling") {
  const auto same = [](const char* a, const char* b) { return seen_values::hash(a) == seen_values::hash(b); };
  for (const auto& [a, b] : {std::pair("1", "1.0"),
                             {"1", "10e-1"},
                             {"0", "-0.0"},
                             {"0.5", "5E-1"},
                             {"100", "1e2"},
                             {"\"a\"", "\"\\u0061\""},
                             {"\"\\n\"", "\"\\u000a\""},
                             {"\"😀\"", "\"\\ud83d\\ude00\""},
                             {"[1,2]", "[ 1.0, 2 ]"},
                             {R"({"a":1,"b":[]})", R"({ "b": [ ], "a":1 })"},
                             {R"({"a":1,"a":2})", R"({"a":2})"}}) {
    INFO(a, " and ", b);
    CHECK(same(a, b));
  }
  for (const auto& [a, b] : {std::pair("1", "true"),
                             {"0", "false"},
                             {"null", "\"null\""},
                             {"1", "\"1\""},
                             {"[]", "{}"},
                             {"[1,2]", "[2,1]"},
                             {"[[1],2]", "[[1,2]]"},
                             {"1", "-1"},
                             {"1152921504606846976", "1152921504606846977"},
                             {"true", "false"},
                             {R"({"a":1})", R"({"b":1})"},
                             {R"({"a":1,"b":2})", R"({"a":2,"b":1})"},
                             {"10", "1"},
                             {"\"\"", "[]"}}) {
    INFO(a, " and ", b);
    CHECK(!same(a, b));
  }
}

TEST_CASE("uniqueItems holds for items of every kind") {
  const auto check = [](const std::string& items, std::vector<const char*> valid, std::vector<const char*> invalid) {
    const auto g = telling_guide(array_of(items));
    for (const auto* text : valid) {
      INFO(items, " ", text);
      CHECK(accepts_text(g, text));
    }
    for (const auto* text : invalid) {
      INFO(items, " ", text);
      CHECK(!accepts_text(g, text));
    }
  };
  check("{}", {"[]", "[1,true,\"1\",null,[1],{\"a\":1},1.5]", "[[1,2],[2,1],[1],[]]", "[[1,1]]"},
        {"[1,1]", "[1,2,1.0]", "[[1],[1]]", R"([{"a":1,"b":2},{"b":2,"a":1}])", "[null,null]", "[\"a\",\"\\u0061\"]"});
  check(R"({"type":"integer"})", {"[1,11,111,1111]", "[-1,1]"}, {"[1,11,1]", "[0,-0]"});
  check(R"({"type":"array","uniqueItems":true})", {"[[1],[1,2],[2,1]]"}, {"[[1,1]]", "[[1],[1]]"});
  check(R"({"type":"object"})", {R"([{"a":[1,1]},{"a":[1]}])"}, {R"([{},{}])"});
  std::string many = "[0";
  for (int i = 1; i < 500; ++i)
    many += "," + std::to_string(i);
  const auto g = telling_guide(array_of(R"({"type":"integer"})"));
  CHECK(accepts_text(g, many + ",500]"));
  for (const auto* again : {",0]", ",31]", ",250]", ",499]"})
    CHECK(!accepts_text(g, many + again));
  CHECK(accepts_text(telling_guide(R"({"type":"array","uniqueItems":true,"prefixItems":[{"type":"boolean"}],
                                       "items":{"type":["boolean","null"]}})"),
                     "[true,null,false]"));
  // Of two schemas, only one tells items apart.
  const auto either = telling_guide(R"({"anyOf":[{"type":"array","items":{"type":"integer"},"uniqueItems":true},
                                                {"type":"array","items":{"maximum":3,"type":"integer"}}]})");
  CHECK(accepts_text(either, "[1,1]"));
  CHECK(accepts_text(either, "[4,5]"));
  CHECK(!accepts_text(either, "[4,4]"));
  CHECK(!accepts_text(either, "[1,1,4]"));
}

TEST_CASE("names are told apart where their number counts") {
  const auto g = telling_guide(R"({"type":"object","minProperties":3})");
  CHECK(accepts_text(g, R"({"a":1,"b":1,"c":{"a":1,"a":2}})"));
  CHECK(!accepts_text(g, R"({"a":1,"b":1})"));
  CHECK(!accepts_text(g, R"({"a":1,"b":1,"\u0061":1})"));
  CHECK(!accepts_text(telling_guide(R"({"type":"object","minProperties":3,"additionalProperties":{"type":"null"}})"),
                      R"({"a":null,"b":null,"a":null})"));
}

TEST_CASE("what was there is a function of the text: forks go their own ways, a state that was dropped comes back") {
  auto limits = guide_limits{};
  limits.states = 400; // an automaton that is dropped again and again
  const auto g = compile_guide(
    {.what = guide_source::kind::json_schema, .text = array_of(R"({"type":"integer"})"), .compact = true}, telling(),
    limits);
  guide_state one(g);
  REQUIRE(one.advance("[1,2"));
  auto other = one;
  CHECK(one.advance(",3"));
  CHECK(!one.advance(",3]"));
  CHECK(other.advance(",3]"));
  CHECK(other.can_end());
  CHECK(!other.advance(token_id(256 + 1)));
  CHECK(one.advance(",33]"));
}

TEST_CASE("JSON whose values are told apart begins anew behind other text") {
  const auto tag = R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f>"],
    "tags":[{"begin":"<f>","end":"</f>","content":{"type":"json_schema","json_schema":)" +
    array_of(R"({"type":"integer"})") + "}}]}}";
  const auto g = compile_guide({.what = guide_source::kind::structural_tag, .text = tag}, telling());
  CHECK(accepts_text(g, "say [1,1 \" <f>[1,2]</f> and <f>[1,3]</f>"));
  CHECK(!accepts_text(g, "say [1,1 \" <f>[1,2]</f> and <f>[1,1]</f>"));
  const auto lark = compile_guide(
    {.what = guide_source::kind::grammar, .text = "start: \"\\\"[\" j \";\" j\nj: %json " + array_of("{}") + "\n"},
    telling());
  CHECK(accepts_text(lark, "\"[[1,2];[2,1]"));
  CHECK(!accepts_text(lark, "\"[[1,2];[1,1]"));
}

TEST_CASE("masks agree with what may follow, and lead to no dead end") {
  const std::string schemas[] = {
    array_of(R"({"type":"boolean"})", R"(,"minItems":2)"),
    array_of(R"({"type":"integer","minimum":-1,"maximum":12})", R"(,"minItems":12)"),
    array_of(R"({"type":"integer","minimum":8,"maximum":110})", R"(,"minItems":4)"),
    array_of(R"({"type":"string","pattern":"^([ab]|c[01]|de*)$"})", R"(,"minItems":6)"),
    array_of(R"({"type":"string","maxLength":1,"pattern":"^[a-c]*$"})", R"(,"minItems":4)"),
    array_of(R"({"type":"object","properties":{"k":{"enum":["a","b"]},"v":{"type":"boolean"}},
                 "required":["k"],"additionalProperties":false})",
             R"(,"minItems":5)"),
    array_of(R"({"type":"array","items":{"enum":[1,2]},"uniqueItems":true,"maxItems":2})", R"(,"minItems":4)"),
    array_of("{}", R"(,"minItems":2,"maxItems":4)"),
    array_of(R"({"type":"number","multipleOf":0.5,"minimum":-1,"maximum":1})", R"(,"minItems":4)"),
    array_of(R"({"type":"integer","minimum":0,"maximum":9})", R"(,"contains":{"minimum":8},"minContains":2)"),
    R"({"type":"object","minProperties":3,"patternProperties":{"^[ab][01]?$":{"type":"null"}},"additionalProperties":false})",
    R"({"type":"object","minProperties":2,"additionalProperties":{"type":"integer"}})",
    R"({"type":"object","properties":{"a":{"type":"integer"}},"maxProperties":3,"not":{"propertyNames":{"maxLength":1}}})",
  };
  std::vector<std::uint64_t> mask(telling()->words());
  for (const auto& schema : schemas) {
    const auto g = telling_guide(schema, true);
    const int walks = rounds(8);
    for (int walk = 0; walk < walks; ++walk) {
      std::mt19937 random(static_cast<unsigned>(walk));
      guide_state state(g);
      for (int step = 0; step < 120; ++step) {
        state.mask(mask);
        std::vector<token_id> allowed;
        for (std::size_t i = 0; i < telling()->size(); ++i) {
          const auto id = static_cast<token_id>(i);
          const bool set = (mask[i / 64] >> (i % 64) & 1) != 0;
          if (step < 30) {
            INFO(schema, " ", state.text(), " <> ", telling()->bytes(id));
            auto ahead = state;
            CHECK(set == ahead.advance(id));
          }
          if (set && !telling()->is_end(id) && telling()->bytes(id).size() < (walk % 2 ? 2 : 9))
            allowed.push_back(id);
        }
        INFO(schema, " ", state.text());
        if (state.can_end() && (allowed.empty() || random() % 4 == 0))
          break;
        REQUIRE(!allowed.empty());
        REQUIRE(state.advance(allowed[random() % allowed.size()]));
      }
    }
  }
}
