// What compiling a guide costs: sources that once took gigabytes or minutes stay within the limits, whatever they do.
#include "runtime/guide/guide.hpp"
#include "runtime/support/meter.hpp"
#include "tests/rounds.hpp"
#include "tests/runtime/guide/vocabulary.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::guides;

namespace {

using kind = guide_source::kind;

std::string repeated(const std::function<std::string(int)>& part, int count, const char* separator = ",") {
  std::string result;
  for (int i = 0; i < count; ++i)
    result += (i > 0 ? separator : "") + part(i);
  return result;
}

std::string patterns(int count) {
  return repeated([](int i) { return R"({"pattern":"a.{)" + std::to_string(i + 1) + R"(}b"})"; }, count);
}

std::shared_ptr<const guide_vocabulary> bytes_only() {
  static const auto made = test::vocabulary_of();
  return made;
}

/// Like a model's: words with and without a space, capitals, digits, punctuation, other scripts; all bytes.
std::shared_ptr<const guide_vocabulary> like_a_models() {
  static const auto made = [] {
    std::vector<std::string> texts;
    const auto add = [&](std::string text) { texts.push_back(std::move(text)); };
    for (int n = 10; n < 1000; ++n)
      add(std::to_string(n));
    for (const char a : std::string_view("\"'({[<.,:;!?-_/\\"))
      for (const char b : std::string_view("\"')}]>.,:;n\n "))
        for (const char* c : {"", "\n", "\"", ","})
          add(std::string{a, b} + c);
    const char* syllables[] = {"an",  "ber", "co", "din", "el",  "fra", "go",
                               "hul", "is",  "ka", "lo",  "men", "or",  "pra"};
    for (int n = 0; n < rounds(50000); ++n) {
      std::string word;
      for (int rest = n / 4; word.size() < 2 || rest > 0; rest /= 14)
        word += syllables[rest % 14];
      if (n % 2 == 1)
        word[0] = static_cast<char>(word[0] - 'a' + 'A');
      add((n % 4 < 2 ? "" : " ") + word);
    }
    for (int n = 0; n < rounds(6000); ++n) { // Cyrillic and Han
      add(std::string{'\xD0', static_cast<char>(0xB0 + n % 16), '\xD1', static_cast<char>(0x80 + n / 16 % 16)} +
          std::string(static_cast<std::size_t>(n / 256 % 8), 'x'));
      add(std::string{static_cast<char>(0xE4 + n % 6), static_cast<char>(0x80 + n / 6 % 64),
                      static_cast<char>(0x80 + n / 384 % 64)});
    }
    return test::vocabulary_of(std::move(texts));
  }();
  return made;
}

/// Compiles it, with the first mask; the error, if there is one.
std::optional<error> compile(const guide_source& source, const guide_limits& limits, meter& all) {
  try {
    within(all, [&] {
      guide_state state(compile_guide(source, bytes_only(), limits));
      std::vector<std::uint64_t> mask(bytes_only()->words());
      state.mask(mask);
    });
    return std::nullopt;
  } catch (const failure& f) {
    return f.what_failed();
  }
}

} // namespace

TEST_CASE("sources made to cost are compiled or refused within the limits") {
  const std::string long_key(50'000, 'k');
  const std::pair<std::string, guide_source> sources[] = {
    {"paths",
     {.what = kind::json_schema, .text = "{\"" + long_key + "\":[" + repeated([](int) { return "0"; }, 50'000) + "]}"}},
    {"anchors",
     {.what = kind::json_schema,
      .text = R"({"$id":"http://a/)" + std::string(100'000, 'x') + R"(","$defs":{)" +
        repeated([](int i) { return "\"d" + std::to_string(i) + R"(":{"$anchor":"a)" + std::to_string(i) + "\"}"; },
                 12'000) +
        "}}"}},
    {"a repeated choice",
     {.what = kind::grammar,
      .text = "root ::= (" + repeated([](int) { return "\"a\""; }, 5000, "|") + "| root){90000}"}},
    {"constants",
     {.what = kind::json_schema,
      .text = R"({"anyOf":[)" + repeated([](int i) { return R"({"const":"c)" + std::to_string(i) + "\"}"; }, 45'000) +
        "]}"}},
    {"14 patterns", {.what = kind::json_schema, .text = R"({"type":"string","allOf":[)" + patterns(14) + "]}"}},
    {"250 patterns", {.what = kind::json_schema, .text = R"({"type":"string","allOf":[)" + patterns(250) + "]}"}},
    {"patterns of names",
     {.what = kind::json_schema,
      .text = R"({"type":"object","patternProperties":{)" +
        repeated([](int i) { return "\"a.{" + std::to_string(i) + R"(}b":{"type":"integer"})"; }, 40) + "}}"}},
    {"any case", {.what = kind::regex, .text = "(?i)" + repeated([](int) { return "[^a]"; }, 100'000, "")}},
    {"letters", {.what = kind::regex, .text = repeated([](int) { return "\\p{L}"; }, 60'000, "")}},
    {"a bracket", {.what = kind::regex, .text = "[" + repeated([](int) { return "az"; }, 200'000, "") + "]"}},
    {"names, some",
     {.what = kind::json_schema,
      .text = R"({"type":"object","maxProperties":9000,"properties":{)" +
        repeated([](int i) { return "\"p" + std::to_string(i) + "\":{}"; }, 20'000) + "}}"}},
    {"a chain of references",
     {.what = kind::json_schema,
      .text = R"({"$ref":"#/$defs/d0","$defs":{)" +
        repeated(
                [](int i) {
                  return "\"d" + std::to_string(i) + R"(":{"type":"array","prefixItems":[{"$ref":"#/$defs/d)" +
                    std::to_string(i + 1) + R"("}],"minItems":1})";
                },
                10'000) +
        R"(,"d10000":{"type":"null"}}})"}},
  };
  for (const auto& [name, source] : sources) {
    CAPTURE(name);
    guide_limits limits{.memory = 64u << 20};
    if (name.find("patterns") != std::string::npos) // refused for their memory, which sanitizers take a minute to fill
      limits.compiling = static_cast<std::size_t>(rounds(128)) << 20;
    meter all({});
    const auto begun = std::chrono::steady_clock::now();
    const auto why = compile(source, limits, all);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    MESSAGE(name, ": ", took.count(), " s, ", all.steps() / 1'000'000, " million steps, ", all.peak_bytes() >> 20,
            " MiB: ", why ? why->message.substr(0, 100) : "compiled");
    CHECK((!why || why->code == errc::bad_request));
    CHECK(all.peak_bytes() < limits.compiling + limits.memory + (8u << 20));
    CHECK(all.steps() < limits.work + limits.following + 1'000'000);
  }
}

TEST_CASE("work is refused at the same place whatever else runs, and a guide that is no longer wanted is given up") {
  const guide_source hard{.what = kind::json_schema, .text = R"({"type":"string","allOf":[)" + patterns(30) + "]}"};
  guide_limits few;
  few.work = 1'000'000;
  bytes_only();
  std::uint64_t steps = 0;
  for (int round = 0; round < 2; ++round) {
    meter all({});
    const auto why = compile(hard, few, all);
    REQUIRE(why.has_value());
    CHECK(why->message.find("steps of work") != std::string::npos);
    if (round > 0)
      CHECK(all.steps() == steps);
    steps = all.steps();
  }
  std::stop_source stop;
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.request_stop();
  });
  meter all({}, stop.get_token());
  const auto why = compile(hard, {.expressions = SIZE_MAX, .work = UINT64_MAX / 2, .compiling = SIZE_MAX}, all);
  REQUIRE(why.has_value());
  CHECK(why->code == errc::cancelled); // nothing else would have ended it
}

TEST_CASE(
  "a mask that is made for the first time takes little work, whatever the vocabulary, and is what it should be") {
  const auto pattern = [](const std::string& p) { return R"({"type":"string","pattern":")" + p + "\"}"; };
  const auto dates = [](const std::string& month, const std::string& day) {
    return R"({"pattern":"[0-9]{4}-)" + month + day + "\"}";
  };
  const struct {
    std::string name, schema, before; // the text to which the mask belongs
    std::uint64_t most;               // steps
  } cases[] = {
    {"dates that overlap",
     R"({"type":"string","oneOf":[)" + dates("[0-9]{2}", "") + "," + dates("[0-9]{1}", "") + "," +
       dates("[0-9]{2}", "-[0-9]{2}") + "," + dates("[0-9]{2}", "-[0-9]{1}") + "," + dates("[1-2]{1}", "-[0-9]{2}") +
       "," + dates("[1-2]{1}", "-[0-9]{1}") + R"(,{"maxLength":3}]})",
     "\"", 220'000},
    {"characters that are counted", pattern("^[A-Za-z0-9 &'()*,-./@]{1,32}$"), "\"", 20'000},
    {"names of which patterns tell",
     R"({"type":"object","patternProperties":{"a":{"type":"integer"},"ber":{"type":"integer","minimum":3}}})", "{\"",
     60'000},
    {"objects that begin alike",
     R"({"anyOf":[)" +
       repeated(
         [](int i) {
           return R"({"type":"object","properties":{"name":{"type":"string"},"kind":{"const":"k)" + std::to_string(i) +
             R"("}},"required":["name","kind"]})";
         },
         60) +
       "]}",
     R"({"name": ")", 20'000},
  };
  std::vector<std::uint64_t> mask(like_a_models()->words());
  for (const auto& c : cases) {
    CAPTURE(c.name);
    guide_state state(compile_guide({.what = kind::json_schema, .text = c.schema}, like_a_models()));
    REQUIRE(state.advance(c.before));
    meter cost({});
    within(cost, [&] { state.mask(mask); });
    MESSAGE(c.name, ": ", cost.steps(), " steps for ", like_a_models()->size(), " tokens");
    CHECK(cost.steps() < c.most);
    for (token_id id = 0; id + 1 < static_cast<token_id>(like_a_models()->size()); ++id)
      if (const bool allowed = (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
          allowed != guide_state(state).advance(id))
        FAIL("token ", id, " ", std::string(like_a_models()->bytes(id)));
  }
}
