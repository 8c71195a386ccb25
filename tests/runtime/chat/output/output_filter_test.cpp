// Texts that a client reads as one, and that no token of the model completed.
#include "runtime/chat/output/output_filter.hpp"

#include "tests/runtime/chat/output/parsed_output.hpp"

#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

using filtered_kind = output_delta::kind;

std::shared_ptr<const banned_texts> bans_of(const std::vector<std::string>& texts) {
  return std::make_shared<const banned_texts>(texts);
}

struct filtered_output {
  parsed_output told;
  bool closed = false;
  int tells = 0;

  bool operator==(const filtered_output&) const = default;
};

filtered_output filter_cut(const std::shared_ptr<const chat_output>& what, const std::vector<std::string>& banned,
                           std::string_view text, const std::vector<std::size_t>& cuts) {
  filtered_output result;
  output_filter filter(bans_of(banned), false, [&result] { ++result.tells; });
  chat_output_parser parser(what, "abcdefghijklmnopqrstuvwx");
  const auto pass = [&](output_deltas deltas) {
    filter.apply(deltas);
    collect(result.told, deltas);
  };
  std::size_t from = 0;
  for (const auto cut : cuts) {
    pass(parser.feed(text.substr(from, cut - from)));
    from = cut;
  }
  pass(parser.feed(text.substr(from)));
  pass(parser.finish());
  result.closed = filter.closed();
  CHECK(result.tells == (result.closed ? 1 : 0));
  return result;
}

/// Also of pieces cut at every character.
filtered_output filtered(const std::shared_ptr<const chat_output>& what, const std::vector<std::string>& banned,
                         std::string_view text) {
  auto whole = filter_cut(what, banned, text, {});
  std::vector<std::size_t> all;
  for (std::size_t i = 1; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80)
      all.push_back(i);
  CAPTURE(text);
  CHECK(filter_cut(what, banned, text, all) == whole);
  return whole;
}

std::string read_as_json(std::string_view text) {
  json_unescaping reader;
  std::string result;
  for (const char c : text)
    result += reader.take(c);
  return result;
}

/// What of a call's arguments leaves.
std::string arguments_left(const std::string& arguments, const std::vector<std::string>& banned) {
  output_filter filter(bans_of(banned));
  output_deltas deltas{{filtered_kind::call_begin, "f", 0, {}}};
  for (const char c : arguments)
    deltas.push_back({filtered_kind::call_arguments, {c}, 0, {}});
  filter.apply(deltas);
  parsed_output told;
  collect(told, deltas);
  return told.calls.at(0).second;
}

const std::string whole_call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";

} // namespace

TEST_CASE("content ahead of a call and behind it is one text") {
  const auto hermes = output_of("hermes");
  const auto joined = filtered(hermes, {"banned"}, "This is ban \n" + whole_call + "\nned, and more");
  CHECK(joined.closed);
  CHECK(joined.told.content == "This is banne");
  REQUIRE(joined.told.calls.size() == 1);
  CHECK(joined.told.calls[0].second == "{}");
  const auto calls = filtered(hermes, {"banned"}, "ban" + whole_call + whole_call + "ned" + whole_call);
  CHECK(calls.told.content == "banne");
  CHECK(calls.told.calls.size() == 2); // nothing behind it
  CHECK_FALSE(filtered(hermes, {"banned"}, "ban" + whole_call + "and").closed);
  CHECK_FALSE(filtered(hermes, {"banned"}, "ban" + whole_call + "NED").closed);
}

TEST_CASE("text that was held back is followed where it comes out, at the end, too") {
  const auto hermes = output_of("hermes");
  const auto held = filtered(hermes, {"bank<tool"}, "ban" + whole_call + "k<tool_cal");
  CHECK(held.closed);
  CHECK(held.told.content == "bank<too");
}

TEST_CASE("reasoning and content are two texts, and reasoning in parts is one") {
  const auto thinks = output_of("hermes", "think");
  CHECK_FALSE(filtered(thinks, {"banned"}, "<think>ban</think>ned").closed);
  const auto harmony = output_of("harmony");
  const auto parts = filtered(harmony, {"banned"},
                              "<|channel|>analysis<|message|>ban<|end|><|start|>assistant<|channel|>analysis<|message|>"
                              "ned<|end|><|start|>assistant<|channel|>final<|message|>Hi");
  CHECK(parts.closed);
  CHECK(parts.told.reasoning == "banne");
  CHECK(parts.told.content.empty());
}

TEST_CASE("arguments are one text for each call, as sent and as read") {
  CHECK(arguments_left(R"({"a":"banned"})", {"banned"}) == R"({"a":"banne)");
  CHECK(arguments_left(R"({"a":"ba\u006Ened"})", {"banned"}) == R"({"a":"ba\u006Ene)");
  CHECK(arguments_left(R"({"a":"bann\u0065\u0064"})", {"banned"}) == R"({"a":"bann\u0065\u006)");
  CHECK(arguments_left(R"({"a":"x\/y"})", {"x/y"}) == R"({"a":"x\/)");
  CHECK(arguments_left(R"({"a":"one\ntwo"})", {"one\ntwo"}) == R"({"a":"one\ntw)");
  CHECK(arguments_left(R"({"a":"one\ntwo"})", {"e\\n"}) == R"({"a":"one\)");
  CHECK(arguments_left(R"({"a":"ban","b":"ned"})", {"banned"}) == R"({"a":"ban","b":"ned"})");
  CHECK(arguments_left(R"({"a":"ba\\u006Ened"})", {"banned"}) == R"({"a":"ba\\u006Ened"})");
  CHECK(arguments_left(R"({"a":"\uD83D\uDE00"})", {"😀"}) == R"({"a":"\uD83D\uDE0)");
  output_filter filter(bans_of({"banned"}));
  output_deltas two{{filtered_kind::call_begin, "f", 0, {}},
                    {filtered_kind::call_arguments, R"({"a":"ban)", 0, {}},
                    {filtered_kind::call_begin, "f", 1, {}},
                    {filtered_kind::call_arguments, R"(ned"})", 1, {}}};
  filter.apply(two);
  CHECK_FALSE(filter.closed());
}

TEST_CASE("what a format makes of values is followed, not what the model wrote") {
  const auto pythonic = output_of("lfm2");
  const auto escaped = filtered(pythonic, {"banned"}, R"(<|tool_call_start|>[f(a="ba\x6Ened")]<|tool_call_end|>)");
  REQUIRE(escaped.told.calls.size() == 1);
  CHECK(escaped.closed);
  CHECK(escaped.told.calls[0].second.find("banned") == std::string::npos);
}

TEST_CASE("content is read as JSON only where it is JSON") {
  const auto closes = [](bool json) {
    output_filter filter(bans_of({"banned"}), json);
    output_deltas deltas{{filtered_kind::content, R"({"a":"b\u0061nned"})", 0, {}}};
    filter.apply(deltas);
    return filter.closed();
  };
  CHECK(closes(true));
  CHECK_FALSE(closes(false));
}

TEST_CASE("answers are cut between characters") {
  output_filter filter(bans_of({"schön"}));
  output_deltas deltas{{filtered_kind::content, "sehr sch", 0, {}},
                       {filtered_kind::reasoning, "r", 0, {}},
                       {filtered_kind::content, "ö", 0, {}},
                       {filtered_kind::content, "n", 0, {}}};
  filter.apply(deltas);
  CHECK(filter.closed());
  REQUIRE(deltas.size() == 3);
  CHECK(deltas[2].text == "ö");
  output_filter last(bans_of({"né"}));
  output_deltas one{{filtered_kind::content, "né", 0, {}}, {filtered_kind::content, "x", 0, {}}};
  last.apply(one);
  REQUIRE(one.size() == 1);
  CHECK(one[0].text == "n");
  output_deltas later{{filtered_kind::content, "more", 0, {}}};
  last.apply(later);
  CHECK(later.empty());
}

TEST_CASE("without banned texts everything passes") {
  output_filter filter;
  output_deltas deltas{{filtered_kind::content, "banned", 0, {}}};
  filter.apply(deltas);
  CHECK(deltas.size() == 1);
  CHECK_FALSE(filter.closed());
}

TEST_CASE("escapes of JSON are undone as its readers undo them") {
  CHECK(read_as_json(R"(a\"b\\c\/d\b\f\n\r\t)") == "a\"b\\c/d\b\f\n\r\t");
  CHECK(read_as_json(R"(\u00e9\u20AC)") == "é€");
  CHECK(read_as_json(R"(\ud83d\ude00!)") == "😀!");
  CHECK(read_as_json(R"(\ud83dx)") == "\xEF\xBF\xBDx");
  CHECK(read_as_json(R"(\ud83d\n)") == "\xEF\xBF\xBD\n");
  CHECK(read_as_json(R"(\ud83d\ud83d\ude00)") == "\xEF\xBF\xBD😀");
  CHECK(read_as_json(R"(\ud83d\u0041)") ==
        "\xEF\xBF\xBD"
        "A");
  CHECK(read_as_json(R"(\ude00)") == "\xEF\xBF\xBD");
  CHECK(read_as_json(R"(\u00)").empty());
}
