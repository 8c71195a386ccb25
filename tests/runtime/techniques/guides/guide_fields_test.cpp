// response_format, structured_outputs and their kin: what they ask for, and what is refused by which name.
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/guides/guide_sources.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace troupe;

namespace {

using guide_kind = guides::guide_source::kind;

std::shared_ptr<const guides::guide_source> guide_in(const std::string& body) {
  const auto parsed = json::document::parse(body, "body", errc::bad_request);
  return guides::read_guide(field_reader(parsed.root()));
}

error guide_refusal(const std::string& body) {
  try {
    guide_in(body);
  } catch (const failure& f) {
    return f.what_failed();
  }
  return {errc::internal, "accepted", {}};
}

} // namespace

TEST_CASE("each field that asks for a guide yields its source") {
  CHECK(guide_in("{}") == nullptr);
  CHECK(guide_in(R"({"response_format":null,"structured_outputs":{},"guided_json":null})") == nullptr);
  CHECK(guide_in(R"({"response_format":{"type":"text"}})") == nullptr);
  const auto any = guide_in(R"({"response_format":{"type":"json_object"}})");
  CHECK(any->what == guide_kind::json_object);
  CHECK(any->field == "response_format");
  const auto strict = guide_in(R"({"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,
    "schema":{"type":"object","properties":{"b":{"const":1},"a":{"enum":["x",null]}}}}}})");
  CHECK(strict->what == guide_kind::json_schema);
  CHECK(strict->text == R"({"type":"object","properties":{"b":{"const":1},"a":{"enum":["x",null]}}})");
  CHECK(strict->field == "response_format.json_schema.schema");
  CHECK_FALSE(strict->compact);
  CHECK(strict->closed);
  CHECK_FALSE(guide_in(R"({"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}})")->closed);
  for (const auto* type : {"json_object", "json_schema"}) { // as llama.cpp's clients write it
    const auto bare = guide_in(R"({"response_format":{"type":")" + std::string(type) + R"(","schema":{"const":1}}})");
    CHECK(bare->what == guide_kind::json_schema);
    CHECK(bare->text == R"({"const":1})");
    CHECK(bare->field == "response_format.schema");
  }
  CHECK(guide_in(R"({"response_format":{"type":"json_object","schema":null}})")->what == guide_kind::json_object);
  const auto tag = guide_in(R"({"response_format":{"type":"structural_tag","structures":[],"triggers":["<f"]}})");
  CHECK(tag->what == guide_kind::structural_tag);
  CHECK(tag->text.find("triggers") != std::string::npos);

  CHECK(guide_in(R"({"structured_outputs":{"json":{"type":"string"}}})")->what == guide_kind::json_schema);
  CHECK(guide_in(R"({"structured_outputs":{"json":"{\"type\":\"string\"}"}})")->text == R"({"type":"string"})");
  CHECK(guide_in(R"({"structured_outputs":{"json_object":true}})")->what == guide_kind::json_object);
  CHECK(guide_in(R"({"structured_outputs":{"regex":"a+"}})")->text == "a+");
  CHECK(guide_in(R"({"structured_outputs":{"grammar":"root ::= \"a\""}})")->what == guide_kind::grammar);
  CHECK(guide_in(R"({"structured_outputs":{"structural_tag":"{}"}})")->what == guide_kind::structural_tag);
  CHECK(guide_in(R"({"structured_outputs":{"choice":["yes","no"]}})")->choices ==
        std::vector<std::string>{"yes", "no"});
  CHECK(guide_in(R"({"guided_json":{}})")->field == "guided_json");
  CHECK(guide_in(R"({"guided_regex":"a"})")->what == guide_kind::regex);
  CHECK(guide_in(R"({"guided_choice":["a"]})")->what == guide_kind::choice);
  CHECK(guide_in(R"({"guided_grammar":"root ::= \"a\""})")->what == guide_kind::grammar);
  CHECK(guide_in(R"({"grammar":"root ::= \"a\""})")->field == "grammar");
  CHECK(guide_in(R"({"json_schema":{"type":"null"}})")->what == guide_kind::json_schema);
  CHECK(guide_in(R"({"grammar":""})") == nullptr);

  const auto styled = guide_in(R"({"response_format":{"type":"json_object"},
    "structured_outputs":{"disable_any_whitespace":true,"any_order":true}})");
  CHECK(styled->compact);
  CHECK(styled->any_order);
}

TEST_CASE("a guide that several fields spell alike is one") {
  const auto both = guide_in(R"({"guided_grammar":"start: /a/","structured_outputs":{"grammar":"start: /a/"}})");
  CHECK(both->text == "start: /a/");
  CHECK(both->field == "structured_outputs.grammar");
  CHECK(guide_in(R"({"guided_choice":["a","b"],"structured_outputs":{"choice":["a","b"]}})")->choices.size() == 2);
  CHECK(guide_in(R"({"guided_json":{"a": 1},"structured_outputs":{"json":{"a":1}}})")->text == R"({"a":1})");
  for (const auto* body : {R"({"guided_choice":["a"],"structured_outputs":{"choice":["a","b"]}})",
                           R"({"guided_regex":"a","structured_outputs":{"grammar":"a"}})"})
    CHECK_THROWS_WITH(guide_in(body), doctest::Contains("cannot both be given, as they differ"));
}

TEST_CASE("wrong shapes and contradictions are refused by name") {
  struct bad {
    const char* body;
    const char* param;
  };
  for (const auto& [body, param] : std::initializer_list<bad>{
         {R"({"response_format":"json"})", "response_format"},
         {R"({"response_format":{}})", "response_format.type"},
         {R"({"response_format":{"type":"xml"}})", "response_format.type"},
         {R"({"response_format":{"type":"json_schema"}})", "response_format.json_schema"},
         {R"({"response_format":{"type":"json_object","schema":[]}})", "response_format.schema"},
         {R"({"response_format":{"type":"json_schema","json_schema":{"name":"n"}}})",
          "response_format.json_schema.schema"},
         {R"({"response_format":{"type":"json_schema","json_schema":{"name":1,"schema":{}}}})",
          "response_format.json_schema.name"},
         {R"({"response_format":{"type":"json_schema","json_schema":{"schema":[]}}})",
          "response_format.json_schema.schema"},
         {R"({"structured_outputs":[]})", "structured_outputs"},
         {R"({"structured_outputs":{"regex":1}})", "structured_outputs.regex"},
         {R"({"structured_outputs":{"choice":[]}})", "structured_outputs.choice"},
         {R"({"structured_outputs":{"choice":["a",1]}})", "structured_outputs.choice"},
         {R"({"structured_outputs":{"json":7}})", "structured_outputs.json"},
         {R"({"structured_outputs":{"whitespace_pattern":" "}})", "structured_outputs.whitespace_pattern"},
         {R"({"structured_outputs":{"json":{},"regex":"a"}})", "structured_outputs.regex"},
         {R"({"response_format":{"type":"json_object"},"guided_regex":"a"})", "guided_regex"},
         {R"({"guided_choice":["a"],"guided_json":{}})", "guided_choice"},
         {R"({"structured_outputs":{"regex":"a","compact":true}})", "structured_outputs.compact"},
         {R"({"structured_outputs":{"any_order":true}})", "structured_outputs.any_order"},
         {R"({"guided_choice":"a"})", "guided_choice"},
       }) {
    CAPTURE(body);
    const auto why = guide_refusal(body);
    CHECK(why.code != errc::internal);
    CHECK(why.param == param);
    CHECK(why.message.find('`') != std::string::npos);
  }
}
