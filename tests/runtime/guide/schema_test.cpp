// JSON Schemas: documents that are valid are accepted, others rejected, keyword by keyword; what cannot be enforced is
// refused by name.
#include "runtime/guide/guide.hpp"
#include "tests/runtime/guide/vocabulary.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::guides;

namespace {

struct schema_case {
  const char* schema;
  std::vector<const char*> valid, invalid;
};

void check_schema(const schema_case& c, bool any_order = false, bool closed = false) {
  static const auto vocabulary = test::vocabulary_of();
  INFO(c.schema);
  const auto g = compile_guide(
    {.what = guide_source::kind::json_schema, .text = c.schema, .any_order = any_order, .closed = closed}, vocabulary);
  const auto accepts = [&](std::string_view document) {
    guide_state state(g);
    return state.advance(document) && state.can_end();
  };
  for (const auto* document : c.valid) {
    INFO("valid: ", document);
    CHECK(accepts(document));
  }
  for (const auto* document : c.invalid) {
    INFO("invalid: ", document);
    CHECK(!accepts(document));
  }
}

std::string schema_refusal(const char* schema) {
  try {
    compile_guide({.what = guide_source::kind::json_schema, .text = schema}, test::vocabulary_of());
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_request);
    return f.what();
  }
  return "accepted";
}

} // namespace

TEST_CASE("schemas of numbers are exact in decimal digits") {
  check_schema({R"({"type":"integer","minimum":-12,"exclusiveMaximum":105})",
                {"-12", "-1", "0", "9", "99", "104"},
                {"-13", "105", "-100", "1.5", "007", "\"1\"", "-"}});
  check_schema({R"({"type":"number","minimum":-0.5,"maximum":2.25})",
                {"-0.5", "-0.49", "0", "2", "2.25", "2.2499", "2.2500"},
                {"-0.51", "-1", "2.251", "2.3", "3", "10"}});
  check_schema({R"({"type":"number","exclusiveMinimum":0})", {"0.001", "1"}, {"0", "0.0", "-0", "-1"}});
  check_schema({R"({"minimum":3,"exclusiveMinimum":true,"$schema":"http://json-schema.org/draft-04/schema#"})",
                {"4", "3.1", "\"a\""},
                {"3", "2"}});
  check_schema({R"({"type":"number","multipleOf":0.01})", {"1", "1.25", "0.10", "1.250"}, {"1.255", "0.001"}});
  check_schema(
    {R"({"type":"integer","multipleOf":7,"minimum":10,"maximum":30})", {"14", "21", "28"}, {"7", "15", "35"}});
  check_schema({R"({"type":"number"})", {"-1.5e-10", "1E5", "0"}, {"01", ".5", "1.", "+1"}});
  check_schema({R"({"not":{"type":"integer"},"type":"number"})", {"1.5"}, {"1", "1.0"}});
}

TEST_CASE("numbers end, however little their schema says of them") {
  const std::string nines(20, '9');
  const auto longer = nines + "9", fraction = "0." + nines, longer_fraction = fraction + "9";
  for (const auto* schema :
       {R"({"type":"integer"})", R"({"type":"integer","minimum":3})", R"({"type":"number"})", "{}"})
    check_schema({schema, {nines.c_str(), "12"}, {longer.c_str()}});
  check_schema({R"({"type":"number"})", {fraction.c_str(), "1.5e-308", "5E+324"}, {longer_fraction.c_str(), "1e1000"}});
  check_schema({R"({"type":"integer","minimum":100000000000000000000000})", {"100000000000000000000001"}, {"1"}});
  check_schema({R"({"enum":[1,1000000000000000000000000]})", {"1000000000000000000000000"}, {"10"}});
}

TEST_CASE("constants and bounds keep the digits that a double has not") {
  check_schema(
    {R"({"const":12345678901234567890123})",
     {"12345678901234567890123"},
     {"12345678901234567890124", "12345678901234567000000", "12345678901234567890122", "1.2345678901234568e22"}});
  check_schema({R"({"enum":[-18446744073709551616,0.1000000000000000055,0.1,1.50e3,1e23]})",
                {"-18446744073709551616", "0.1000000000000000055", "0.1", "1500", "100000000000000000000000"},
                {"18446744073709551616", "-18446744073709551615", "0.10000000000000000555", "0.1000000000000000056",
                 "99999999999999991611392"}});
  check_schema({R"({"type":"integer","minimum":12345678901234567890123,"maximum":12345678901234567890125})",
                {"12345678901234567890123", "12345678901234567890125"},
                {"12345678901234567890122", "12345678901234567890126"}});
  check_schema({R"({"type":"number","exclusiveMinimum":0.1000000000000000055,"maximum":0.25})",
                {"0.1000000000000000056", "0.25"},
                {"0.1", "0.1000000000000000055"}});
  check_schema({R"({"const":[{"a":1.2345678901234567890123e5}]})",
                {R"([{"a":123456.78901234567890123}])"},
                {R"([{"a":123456.78901234568}])"}});
  check_schema(
    {R"({"type":"array","items":{"enum":[12345678901234567890123,12345678901234567890124]},"uniqueItems":true})",
     {"[12345678901234567890123,12345678901234567890124]"},
     {"[12345678901234567890123,12345678901234567890123]"}});
}

TEST_CASE("schemas of strings follow values, not spellings") {
  check_schema({R"({"type":"string","minLength":2,"maxLength":3})",
                {"\"ab\"", "\"éüö\"", "\"\\n\\\"\"", "\"\\u0001日\""},
                {"\"a\"", "\"abcd\"", "\"\\n\"", "ab"}});
  check_schema(
    {R"({"type":"string","pattern":"^a.c$","maxLength":3})", {"\"abc\"", "\"a\\\\c\""}, {"\"ac\"", "\"abbc\""}});
  check_schema(
    {R"({"type":"string"})", {"\"\\ud83d\\ude00\"", "\"\\/\""}, {"\"\\ud83d\"", "\"\n\"", "\"\\x\"", "\"\xFF\""}});
  check_schema({R"({"not":{"enum":["a","b"]},"type":"string"})", {"\"c\"", "\"ab\"", "\"\""}, {"\"a\"", "\"b\""}});
  check_schema({R"({"enum":["a/b","é",1,1.5,null,[1,{"x":2}]]})",
                {"\"a/b\"", "\"a\\/b\"", "\"é\"", "1", "1.0", "1.5", "null", "[1, {\"x\": 2}]"},
                {"\"a\"", "2", "[1]", "[1, {\"x\": 3}]", "[1, {\"x\": 2}, 1]", "true"}});
}

TEST_CASE("formats are enforced where they are known") {
  const auto format = [](const char* name, std::vector<const char*> valid, std::vector<const char*> invalid) {
    const auto schema = std::string(R"({"type":"string","format":")") + name + "\"}";
    check_schema({schema.c_str(), std::move(valid), std::move(invalid)});
  };
  format("date", {"\"2024-02-29\"", "\"2000-02-29\"", "\"2023-12-31\"", "\"0004-02-29\"", "\"0010-01-01\""},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\"", "\"0000-01-01\"", "\"0000-02-29\""});
  format("date-time", {"\"2024-01-01T00:00:00Z\"", "\"2024-01-01t23:59:60.5z\"", "\"2024-01-01T10:00:00.123+05:30\""},
         {"\"2024-01-01 00:00:00Z\"", "\"2024-01-01T24:00:00Z\"", "\"2024-01-01T00:00:00\""});
  format("duration", {"\"P1Y2M3DT4H5M6S\"", "\"P2W\"", "\"PT1M\""}, {"\"P\"", "\"PT\"", "\"P1S\""});
  format("email", {"\"a.b+c@example.com\""}, {"\"a\"", "\"a@\"", "\".a@b\"", "\"a@-b\""});
  format("hostname", {"\"example.com\"", "\"a\""}, {"\"-a\"", "\"a..b\"", "\"a_b\""});
  format("ipv4", {"\"255.0.1.99\""}, {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""});
  format("ipv6", {"\"::\"", "\"1::8\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\""},
         {"\"1::2::3\"", "\"12345::\"", "\":\""});
  format("uri", {"\"http://a.b/c?d=e#f\"", "\"urn:x:y\"", "\"mailto:a@b\""}, {"\"/a\"", "\"a b:c\"", "\"http://a b\""});
  format("uri-reference", {"\"/a/b\"", "\"\"", "\"../x#y\"", "\"http://a\""}, {"\"a b\"", "\"\\\\\\\\x\""});
  format("uuid", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""});
  format("byte", {"\"YWI=\"", "\"-----BEGIN\""}, {}); // OpenAPI's, which the standard does not know
  format("iri", {"\"https://é.example/日?ü#ß\"", "\"urn:x\""}, {"\"/é\"", "\"a b:c\"", "\"x:\\u0001\""});
  format("iri-reference", {"\"/日本\"", "\"\""}, {"\"a b\""});
  format("idn-email", {"\"ü@bücher.example\"", "\"a@b.c\""}, {"\"a\"", "\"a b@c\""});
  format("idn-hostname", {"\"bücher.example\"", "\"例子.test\"", "\"a-b.c\""}, {"\"-a\"", "\"a..b\"", "\"Ü\""});
  format("uri-template", {"\"/a/{id}{?x,y*}{+p:3}\"", "\"\""}, {"\"{\"", "\"{a b}\"", "\"}\"", "\"{x:0}\""});
  format("regex",
         {R"("^[a-zA-Z0-9_]{3,16}$")", R"(".*")", R"("")", R"("a|b|")", R"("(?:x(y(z)+)?)*\\d{2,}?")", R"("[^\\]-]")",
          R"("\\u00e9(?=a)[-a-f\\w-]")"},
         {R"("*")", R"("(")", R"x(")")x", R"("a**")", R"("[b-a]")", R"("a{3,2}")", R"("a{12,11}")", R"("[")", R"("\\")",
          R"x("(?<a)")x", R"("a{1,00}")"});
  format("colour", {"\"anything\""}, {});
}

TEST_CASE("schemas of objects: names, order, counts") {
  const schema_case person{
    R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{}},"required":["b"],
        "additionalProperties":{"type":"null"}})",
    {R"({"a":1,"b":"x","c":[]})", R"({ "b" : "x" })", R"({"b":"x","d":null})", "{\n\t\"b\": \"\"\r\n}"},
    {"{}", R"({"a":1})", R"({"b":1})", R"({"b":"x","d":1})", R"({"a":"1","b":"x"})", R"({"b":"x",})",
     R"({"b":"x","b":"y"})"}};
  check_schema(person);
  check_schema(person, true);
  const schema_case any{R"({"properties":{"a":{},"b":{}},"required":["a"],"additionalProperties":false})",
                        {R"({"b":1,"a":2})", R"({"a":2,"b":1})", R"({"a":2})", "3"},
                        {R"({"b":1})", R"({"a":1,"b":1,"a":1})", R"({"a":1,"c":1})"}};
  check_schema(any, true);
  check_schema({R"({"type":"object","patternProperties":{"^x":{"type":"integer"},"y$":{"minimum":5}},
                    "additionalProperties":false})",
                {"{}", R"({"x":1})", R"({"y":7,"xy":6})", R"({"ay":"s"})"},
                {R"({"x":"1"})", R"({"xy":1})", R"({"xy":5.5})", R"({"z":1})"}});
  check_schema({R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":2},"maxProperties":2})",
                {"{}", R"({"ab":1,"c":2})"},
                {R"({"A":1})", R"({"abc":1})", R"({"a":1,"b":2,"c":3})"}});
  check_schema(
    {R"({"properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,"minProperties":2,"type":"object"})",
     {R"({"a":1,"b":1})", R"({"b":1,"c":1})", R"({"a":1,"b":1,"c":1})"},
     {"{}", R"({"c":1})"}});
  check_schema(
    {R"({"type":"object","properties":{"a":{},"b":{}},"dependentRequired":{"a":["b"]},"additionalProperties":false})",
     {"{}", R"({"b":1})", R"({"a":1,"b":1})"},
     {R"({"a":1})"}});
}

TEST_CASE("schemas of arrays: items, counts, contents") {
  check_schema(
    {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":1,
                    "maxItems":4})",
     {"[1]", "[1, \"a\"]", "[1,\"a\",null , null]"},
     {"[]", "[\"a\"]", "[1,\"a\",2]", "[1,\"a\",null,null,null]", "[1,]"}});
  check_schema(
    {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":false})", {"[]", "[1]"}, {"[1,2]", "[\"\"]"}});
  check_schema({R"({"type":"array","contains":{"type":"integer"},"minContains":2,"maxContains":3})",
                {"[1,2]", "[\"a\",1,null,2]", "[1,2,3]"},
                {"[]", "[1]", "[1,2,3,4]", "[\"a\"]"}});
  check_schema({R"({"type":"array","items":{"enum":["a","b",1]},"uniqueItems":true,"minItems":2})",
                {"[\"a\",1]", "[1,\"b\",\"a\"]"},
                {"[\"a\",\"a\"]", "[1,1.0]", "[\"a\"]", "[\"a\",\"b\",1,\"a\"]"}});
}

TEST_CASE("combinations are exact") {
  check_schema(
    {R"({"oneOf":[{"type":"integer"},{"minimum":5,"type":"number"}]})", {"3", "5.5"}, {"7", "1.5", "\"a\""}});
  check_schema(
    {R"({"oneOf":[{"multipleOf":2},{"multipleOf":3}],"type":"integer"})", {"2", "9", "4"}, {"6", "12", "5"}});
  check_schema({R"({"oneOf":[{"properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"]},
                             {"properties":{"k":{"const":"b"}},"required":["k"]}],"type":"object"})",
                {R"({"k":"a","x":1})", R"({"k":"b","x":"s"})"},
                {R"({"k":"a","x":"s"})", R"({"k":"c"})", "{}"}});
  check_schema({R"({"oneOf":[{"required":["a"]},{"required":["b"]}],"properties":{"a":{},"b":{}},"type":"object"})",
                {R"({"a":1})", R"({"b":1})", R"({"a":1,"c":2})"},
                {R"({"a":1,"b":1})", "{}"}});
  check_schema({R"({"allOf":[{"properties":{"a":{"minimum":2}}},{"properties":{"a":{"maximum":4}},
                    "required":["a"]}],"type":"object"})",
                {R"({"a":3})", R"({"a":"s","b":0})"},
                {R"({"a":1})", R"({"a":5})", "{}"}});
  check_schema(
    {R"({"if":{"properties":{"t":{"const":1}},"required":["t"]},"then":{"required":["u"]},"else":{"properties":
                   {"u":false}},"type":"object","properties":{"t":{},"u":{}}})",
     {R"({"t":1,"u":2})", R"({"t":2})", "{}"},
     {R"({"t":1})", R"({"t":2,"u":2})", R"({"u":2})"}});
  check_schema({R"({"not":{"type":"array","items":{"type":"integer"}}})", {"[1,\"a\"]", "1", "{}"}, {"[]", "[1,2]"}});
  check_schema({R"({"not":{"anyOf":[{"type":"string"},{"required":["a"]}]}})",
                {"{}", R"({"b":1})"},
                {"1", "\"s\"", R"({"a":1})"}});
  check_schema({R"({"const":{"a":[1,{"b":null}]}})", {R"({"a": [1, {"b": null}]})"}, {R"({"a":[1,{}]})", "{}"}});
}

TEST_CASE("references and recursion") {
  check_schema({R"({"$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array",
                    "items":{"$ref":"#/$defs/tree"}}},"required":["v"],"additionalProperties":false}},
                    "$ref":"#/$defs/tree"})",
                {R"({"v":1,"kids":[{"v":2},{"v":3,"kids":[]}]})"},
                {R"({"v":1,"kids":[{}]})", R"({"v":1,"kids":[{"v":"x"}]})"}});
  check_schema(
    {R"({"$id":"http://a/b","definitions":{"x":{"$id":"c","type":"integer"},"y":{"$anchor":"z","type":"null"}},
                    "items":[{"$ref":"http://a/c"},{"$ref":"#z"},{"$ref":"#/definitions/x"}],"type":"array"})",
     {"[1,null,2]"},
     {"[null]", "[1,2]"}});
  // A draft up to 7 ignores what stands beside a reference, a later one does not.
  check_schema({R"({"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"i":{"type":"integer"}},
                    "properties":{"a":{"$ref":"#/definitions/i","minimum":5}},"type":"object"})",
                {R"({"a":1})"},
                {R"({"a":"x"})"}});
  check_schema(
    {R"({"$defs":{"i":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/i","minimum":5}},"type":"object"})",
     {R"({"a":6})"},
     {R"({"a":1})"}});
  check_schema({R"({"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#"},"minItems":1}]})",
                {"null", "[null,[null]]"},
                {"[]", "[[]]"}});
}

TEST_CASE("what cannot be enforced exactly is refused by name") {
  const std::pair<const char*, const char*> refused[] = {
    {R"({"type":"array","not":{"uniqueItems":true}})", "uniqueItems"},
    {R"({"not":{"unevaluatedProperties":{"type":"null"}}})", "unevaluatedProperties"},
    {R"({"type":"string","not":{"format":"iri"}})", "iri"},
    {R"({"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false})", "unevaluatedProperties"},
    {R"({"type":"string","pattern":"(a)\\1"})", "backreference"},
    {R"({"$dynamicRef":"#x"})", "$dynamicRef"},
    {R"({"$ref":"#/nowhere"})", "$ref"},
    {R"({"$ref":"other.json"})", "$ref"},
    {R"({"type":"strin"})", "type"},
    {R"({"minLength":-1})", "minLength"},
    {R"({"enum":1})", "enum"},
    {R"({"anyOf":[]})", "anyOf"},
    {R"({"allOf":[{"$ref":"#"}],"type":"string"})", "itself"},
    {R"({"type":"object","properties":{"a":false},"required":["a"]})", "allows no text"},
    {R"({"items":{"$ref":"#"},"minItems":1,"type":"array"})", "allows no text"},
    {R"({"a":1,"a":2})", "a"},
    {"[", "JSON"},
    {"3", "schema"},
  };
  for (const auto& [schema, name] : refused) {
    INFO(schema);
    const auto told = schema_refusal(schema);
    CHECK(told != "accepted");
    INFO(told);
    CHECK(told.find(name) != std::string::npos);
  }
}

TEST_CASE("objects have what another schema's keyword excludes, where it must not hold") {
  for (const bool any_order : {false, true}) {
    const auto check = [&](const schema_case& c) { check_schema(c, any_order); };
    check(
      {R"({"type":"object","properties":{"a":{}},"not":{"properties":{"a":{}},"additionalProperties":{"type":"null"}}})",
       {R"({"a":1,"b":2})", R"({"b":null,"c":[]})"},
       {"{}", R"({"a":1})", R"({"b":null})", R"({"b":1,"b":null})"}});
    check({R"({"type":"object","not":{"patternProperties":{"^x":{"type":"integer"}}}})",
           {R"({"x":"a"})", R"({"y":1,"xy":null})"},
           {"{}", R"({"x":1})", R"({"y":"a"})"}});
    check({R"({"type":"object","not":{"propertyNames":{"maxLength":2}}})", {R"({"abc":1})"}, {"{}", R"({"ab":1})"}});
    // One member meets both needs, as there is room for one.
    check({R"({"type":"object","maxProperties":2,"required":["a"],
               "not":{"anyOf":[{"propertyNames":{"maxLength":2}},{"additionalProperties":{"type":"string"}}]}})",
           {R"({"a":1,"bcd":1})", R"({"a":"s","bcd":null})", R"({"a":1,"bcd":"s"})"},
           {R"({"a":1})", R"({"a":"s","bcd":"s"})", R"({"a":1,"b":1})"}});
    check({R"({"oneOf":[{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false},
                        {"type":"object","required":["a"]}]})",
           {"{}", R"({"a":"x"})", R"({"a":1,"b":2})"},
           {R"({"a":1})", R"({"b":1})"}});
    check(
      {R"({"type":"object","properties":{"a":{}},"propertyNames":{"enum":["a"]},"not":{"additionalProperties":{"type":"null"}}})",
       {R"({"a":1})"},
       {"{}", R"({"a":null})"}});
  }
  check_schema({R"({"type":"array","not":{"prefixItems":[{}],"items":{"type":"null"}}})",
                {"[1,2]", "[null,null,3]"},
                {"[]", "[1]", "[1,null]"}});
  check_schema({R"({"type":"array","items":{"type":["integer","null"]},
                    "not":{"contains":{"type":"integer"},"minContains":2,"maxContains":3}})",
                {"[]", "[1,null]", "[1,2,3,null,4]"},
                {"[1,2]", "[1,2,null,3]"}});
}

TEST_CASE("what is invented for a schema holds in drafts that do not know its keywords") {
  const std::string draft_4 = R"("$schema":"http://json-schema.org/draft-04/schema#",)";
  check_schema({("{" + draft_4 + R"("enum":[["deleted"],{"a":[1]}]})").c_str(),
                {R"(["deleted"])", R"({"a":[1]})"},
                {R"(["size"])", R"({"a":[2]})"}});
  check_schema({("{" + draft_4 + R"("type":"array","items":{"type":"integer"},"not":{"items":{"minimum":3}}})").c_str(),
                {"[1]", "[4,2]"},
                {"[]", "[3]"}});
}

TEST_CASE("a oneOf of many branches that overlap is exact") {
  std::string branches;
  for (int i = 0; i < 12; ++i) {
    const auto n = std::to_string(i);
    branches += (i ? "," : "") +
      (R"({"type":"object","properties":{"kind":{"enum":["k)" + n + R"("]},"v)" + n +
       R"(":{"type":"integer"},"w":{"type":"string"}},"required":["w"]})");
  }
  const auto schema = R"({"oneOf":[)" + branches + "]}";
  check_schema({schema.c_str(),
                {R"({"kind":"k3","w":"x"})", R"({"kind":"k3","w":"x","v3":1})", R"({"w":"","kind":"k0"})"},
                {R"({"w":"x"})", R"({"kind":"no","w":"x"})", R"({"kind":"k3"})", R"({"kind":"k3","w":"x","v3":""})"}},
               true);
}

TEST_CASE("closed objects have no members but those that they name, unless their schema speaks of others") {
  const auto closed = [](const schema_case& c) { check_schema(c, false, true); };
  const auto* const extra = R"({"a":1,"b":2})";
  for (const auto* schema :
       {R"({"type":"object","properties":{"a":{"type":"integer"}}})",
        R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})",
        R"({"$ref":"#/$defs/x","$defs":{"x":{"type":"object","properties":{"a":{"type":"integer"}}}}})",
        R"({"anyOf":[{"type":"null"},{"type":"object","properties":{"a":{"type":"integer"}}}]})",
        R"({"type":"object","properties":{"a":{"type":"integer"}},"patternProperties":{"^x":{"type":"null"}}})"}) {
    closed({schema, {R"({"a":1})"}, {extra, R"({"a":1,"":null})"}});
    check_schema({schema, {R"({"a":1})", extra}, {}}); // as the standard says
  }
  closed({R"({"type":"object","properties":{"a":{"type":"integer"}},"patternProperties":{"^x":{"type":"null"}}})",
          {R"({"a":1,"xy":null})", R"({"x":null})"},
          {R"({"x":1})"}});
  closed({R"({"type":"object","properties":{"a":{"properties":{"b":{"type":"null"}},"type":"object"}}})",
          {R"({"a":{"b":null}})", R"({"a":{}})"},
          {R"({"a":{"c":1}})"}});
  closed({R"({"type":"array","items":{"type":"object","properties":{"a":{"type":"integer"}}}})",
          {R"([{"a":1},{}])"},
          {R"([{"b":1}])"}});
  closed({R"({"type":"object","properties":{}})", {"{}"}, {extra}});
  closed({R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}}},
              {"properties":{"b":{"type":"integer"}},"required":["b"]}]})",
          {extra, R"({"b":2})"},
          {R"({"a":1,"b":2,"c":3})"}});
  closed({R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["z"]})",
          {R"({"a":1,"z":null})"},
          {R"({"a":1,"z":null,"y":1})"}});
  // It speaks of others, or names none.
  for (const auto* schema : {R"({"type":"object","properties":{"a":{}},"additionalProperties":true})",
                             R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"integer"}})",
                             R"({"type":"object","properties":{"a":{}},"propertyNames":{"maxLength":1}})",
                             R"({"type":"object","properties":{"a":{}},"required":["a"],"minProperties":2})",
                             R"({"type":"object","oneOf":[{"required":["a"]},{"required":["z"]}]})",
                             R"({"type":"object","required":["a"]})", R"({"type":"object"})", "true"})
    closed({schema, {extra}, {}});
}
