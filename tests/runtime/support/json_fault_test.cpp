#include "runtime/support/json/json_fault.hpp"

#include "runtime/support/json/json.hpp"
#include "runtime/support/json/json_digits.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <unistd.h>

using namespace troupe;

namespace {

bool simdjson_takes(const std::string& text) {
  simdjson::dom::parser parser;
  return !parser.parse(text).error();
}

} // namespace

TEST_CASE("The line at which a text stops being JSON") {
  const auto line = [](std::string_view text) { return json::line_of_fault(text); };
  CHECK(line("{\n  \"a\": 1,\n  \"b\": [true, null, -1.5e+3, \"x\\u00e9\\n\"]\n}\n") == 0);
  CHECK(line("{\n  \"a\": 1\n  \"b\": 2\n}") == 3);               // a comma is missing
  CHECK(line("{\n  \"a\": 1,\n}") == 3);                          // there is one too many
  CHECK(line("{\n  'a': 1\n}") == 2);                             // the wrong quotes
  CHECK(line("{\n  \"a\": tru,\n  \"b\": 1\n}") == 2);            // no literal
  CHECK(line("{\n  \"a\": \"never closed,\n  \"b\": 1\n}") == 2); // a string may not hold a line break
  CHECK(line("{\n  \"a\": 01\n}") == 2);
  CHECK(line("{\n  \"a\": \"\\x\"\n}") == 2);
  CHECK(line("{\n  \"a\": \"\xff\"\n}") == 2);
  CHECK(line("{\n  \"a\": 1 // one\n}") == 2);
  CHECK(line("{\n  \"a\": [1, 2\n}\n") == 3);
  CHECK(line("{\n  \"a\": 1\n") == 3); // the end is missing
  CHECK(line("{}\n{}") == 2);
  CHECK(line("") == 1);
  CHECK(line(std::string(1 << 20, '[')) == 1); // no recursion
}

TEST_CASE("A text is at fault where simdjson says so, and only there") {
  const std::string whole = R"({"a": [1, -2.5e3, "x\"y\u00e9", true, false, null], "b": {"c": {}, "d": []}, "e": "é"})";
  REQUIRE(json::line_of_fault(whole) == 0);
  std::mt19937 random(11);
  const std::string bytes = "{}[],:\"\\ 0-.eutfn1\n\x80";
  for (int round = 0; round < 20'000; ++round) {
    auto text = whole;
    for (auto changes = 1 + random() % 2; changes > 0; --changes) {
      const auto at = random() % text.size();
      if (random() % 2)
        text.erase(at, 1);
      else
        text[at] = bytes[random() % bytes.size()];
    }
    INFO(text);
    CHECK((json::line_of_fault(text) == 0) == simdjson_takes(text));
  }
}

TEST_CASE("Errors of texts with several lines name the line") {
  const auto told = [](std::string_view text) -> std::string {
    try {
      json::document::parse(text, "f.json");
    } catch (const failure& e) {
      return e.what();
    }
    return {};
  };
  CHECK(told("{\n\"a\": 1,\n}").starts_with("f.json: line 3: not valid JSON: "));
  CHECK(told("{\"a\": 1,}").starts_with("f.json: not valid JSON: "));
  CHECK(told("{\"a\": 1,}").ends_with(" (at byte 9)"));
  CHECK(told("{'a': 1}").ends_with(" (at byte 2)"));
  CHECK(told("\xEF\xBB\xBF{\"a\": 1,}").ends_with(" (at byte 12)")); // a byte-order mark counts
  CHECK(told("{\"a\": 1").ends_with(" (at its end)"));
  CHECK(told("").find('(') == std::string::npos);
  CHECK(told("{}").empty());
}

TEST_CASE("half of a character's two escapes is named, as programs that cut texts at 16 bits write it") {
  const auto told = [](std::string_view text) -> std::string {
    try {
      json::document::parse(text, "the body");
    } catch (const failure& e) {
      return e.what();
    }
    return {};
  };
  const std::string why = "` is one half of a character that takes two \\u escapes";
  CHECK(told(R"(["a\ud83e"])") == "the body: not valid JSON: `\\ud83e" + why + " (at byte 4)");
  CHECK(told(R"(["\uD83E\u0041"])") == "the body: not valid JSON: `\\uD83E" + why + " (at byte 3)");
  CHECK(told(R"(["\ud83e\ud83e"])").find(why) != std::string::npos);
  CHECK(told(R"(["\ude00"])").find(why) != std::string::npos);
  CHECK(told("[\n\"\\udbff\"]") == "the body: line 2: not valid JSON: `\\udbff" + why);
  CHECK(told(R"(["\ud83e\u12"])").find(why) == std::string::npos);
  CHECK(told(R"(["\ud83e\ude00\uE000\uD7FF"])").empty());
}

TEST_CASE("a text may begin with the mark of UTF-8, and numbers behind it keep their digits") {
  const auto body = json::document::parse("\xEF\xBB\xBF{\"a\": 0.1000000000000000055}", "the body", errc::bad_request);
  CHECK(json::minified(body.root()) == R"({"a":0.1000000000000000055})");
  CHECK_THROWS_AS(json::document::parse("\xEF\xBB\xBF\xEF\xBB\xBF{}", "the body"), failure);
}

TEST_CASE("a number beyond a double is named, wherever the text is JSON otherwise") {
  const auto told = [](const std::string& text) -> std::string {
    try {
      json::document::parse(text, "f.json");
    } catch (const failure& f) {
      return f.what_failed().message;
    }
    return {};
  };
  CHECK(told(R"({"a":[1,"1e999",-1.5e400]})") ==
        "f.json: the number -1.5e400 is out of range, which ends at about 1.8e308");
  CHECK(told("[" + std::string(400, '9') + "]") ==
        "f.json: the number " + std::string(40, '9') + "... is out of range, which ends at about 1.8e308");
  CHECK(told("[1e400,]").starts_with("f.json: not valid JSON: "));
  CHECK(told("[1e-400,1e308,\"1e400\"]").empty());
}

TEST_CASE("JSON: infinities that Python writes are strings in files, and no JSON elsewhere") {
  const auto file = std::filesystem::temp_directory_path() / ("infinite-" + std::to_string(::getpid()) + ".json");
  std::ofstream(file) << R"({"limits": [0.0, Infinity, -Infinity, NaN], "text": "\"Infinity, NaN\\", "is": 1})";
  const auto document = json::document::load(file);
  std::filesystem::remove(file);
  std::string all;
  for (const json::value v : json::array(document.root()["limits"]))
    all += simdjson::minify(v) + " ";
  CHECK(all == "0.0 \"Infinity\" \"-Infinity\" \"NaN\" ");
  CHECK(std::string_view(document.root()["text"]) == "\"Infinity, NaN\\");
  CHECK(std::int64_t(document.root()["is"]) == 1);
  CHECK_THROWS_AS(json::document::parse("[Infinity]", "body"), failure);
}
