#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <doctest/doctest.h>

#include <utility>

using namespace troupe;

namespace {

error reading_error(auto run) {
  try {
    run();
  } catch (const failure& f) {
    return f.what_failed();
  }
  return {errc::internal, "nothing was thrown", {}};
}

} // namespace

TEST_CASE("A reader yields typed members and treats null as absent") {
  const auto document = json::document::parse(R"({"s":"x","n":3,"r":0.5,"b":true,"z":null,"l":[1,2],"o":{"k":7}})",
                                              "f");
  const json::reader root(document);
  CHECK(root.string("s") == "x");
  CHECK(root.integer("n", 0, 9) == 3);
  CHECK(root.integer("m", 0, 9, 5) == 5);
  CHECK(root.number("r", 0, 1) == 0.5);
  CHECK(root.boolean("b", false));
  CHECK_FALSE(root.has("z"));
  CHECK(root.contains("z"));
  CHECK(root.integers("l", 0, 9) == std::vector<std::int32_t>{1, 2});
  CHECK(root.integers("n", 0, 9) == std::vector<std::int32_t>{3});
  CHECK(root.object("o")->size("k", 9) == 7);
  CHECK(root.at("l").items()[1].integer(0, 9) == 2);
}

TEST_CASE("Each wording names the value, the expectation and the value found") {
  const auto document = json::document::parse(R"({"a":{"b":[1,"x"],"n":12}})", "f.json");
  const auto complaint = [&](const json::wording& how, auto use) {
    const auto what = reading_error(
      [&] { use(json::reader(document.root(), &how == &json::body_wording ? "" : "f.json", {}, how).at("a")); });
    return std::pair(what.message, what.param);
  };
  using pair = std::pair<std::string, std::string>;
  const auto item = [](const json::reader& a) { a.at("b").items()[1].integer(0, 9); };
  const auto range = [](const json::reader& a) { a.integer("n", 0, 9); };
  const auto absent = [](const json::reader& a) { a.at("c"); };
  CHECK(complaint(json::tokenizer_wording, item) ==
        pair{"f.json: `a.b[1]` must be an integer from 0 to 9, not `x`", ""});
  CHECK(complaint(json::tokenizer_wording, range) ==
        pair{"f.json: `a.n` must be an integer from 0 to 9, not `12`", ""});
  CHECK(complaint(json::tokenizer_wording, absent) == pair{"f.json: `a.c` is missing", ""});
  CHECK(complaint(json::config_wording, item) == pair{"f.json: `a`: `b[1]` must be an integer, found a string", ""});
  CHECK(complaint(json::config_wording, range) == pair{"f.json: `a`: `n` must be from 0 to 9, found 12", ""});
  CHECK(complaint(json::config_wording, absent) == pair{"f.json: `a`: `c` is missing", ""});
  CHECK(complaint(json::body_wording, item) ==
        pair{"`a.b[1]` must be an integer between 0 and 9, not a string", "a.b[1]"});
  CHECK(complaint(json::body_wording, range) == pair{"`a.n` must be an integer between 0 and 9, not 12", "a.n"});
  CHECK(complaint(json::body_wording, absent) == pair{"`a.c` is missing", "a.c"});
}

TEST_CASE("JSON strings are written with minimal or ASCII escapes") {
  CHECK(json_text("a\"\\\n\x1f/\x7f"
                  "é😀") ==
        "\"a\\\"\\\\\\n\\u001f/\x7f"
        "é😀\"");
  CHECK(json_text("\x7f"
                  "aé😀",
                  json_escapes::ascii) == "\"\\u007fa\\u00e9\\ud83d\\ude00\"");
  CHECK(json_text("") == "\"\"");
}

TEST_CASE("UTF-8 in pieces is the same as UTF-8 at once") {
  const std::string bytes = "a\xc3\xa9\xf0\x9f\x98\x80\xed\xa0\x80\xc3";
  CHECK_FALSE(is_utf8(bytes));
  std::string out;
  lossy_utf8 converter;
  for (const char byte : bytes)
    converter.push({&byte, 1}, out);
  converter.finish(out);
  CHECK(out == to_utf8(bytes));
  CHECK(is_utf8(out));
  CHECK(count_characters(out) == 7);
}
