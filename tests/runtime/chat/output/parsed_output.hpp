// Runs texts through the parser of a chat model's output. For tests only.
#pragma once

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/chat_output_parser.hpp"
#include "runtime/chat/output/reasoning_format.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::test {

struct parsed_output {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls; // name, arguments
  std::vector<std::string> ids;

  bool operator==(const parsed_output&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const parsed_output& p) {
  out << "content `" << p.content << "` reasoning `" << p.reasoning << '`';
  for (const auto& [name, arguments] : p.calls)
    out << " call " << name << '(' << arguments << ')';
  return out;
}

inline void collect(parsed_output& to, const output_deltas& deltas) {
  for (const auto& delta : deltas)
    switch (delta.what) {
      case output_delta::kind::content: to.content += delta.text; break;
      case output_delta::kind::reasoning: to.reasoning += delta.text; break;
      case output_delta::kind::call_begin:
        REQUIRE(delta.call == to.calls.size());
        to.calls.emplace_back(delta.text, "");
        to.ids.push_back(delta.id);
        break;
      case output_delta::kind::call_arguments: to.calls.at(delta.call).second += delta.text; break;
    }
}

/// Tools f, g and get_weather; of get_weather, `city` is a string, `days` a number.
inline std::shared_ptr<chat_output> output_of(std::string_view calls, std::string_view reasoning = "none") {
  auto what = std::make_shared<chat_output>();
  what->format.calls = find_call_format(calls);
  what->format.reasoning = find_reasoning_format(reasoning);
  what->tools.emplace_back("f", "");
  what->tools.emplace_back("g", "");
  what->tools.emplace_back("get_weather",
                           R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},)"
                           R"("required":["city"]})");
  return what;
}

/// `cuts`: where the text is cut, ascending.
inline parsed_output parse_cut(const std::shared_ptr<const chat_output>& what, std::string_view text,
                               const std::vector<std::size_t>& cuts) {
  chat_output_parser parser(what, "abcdefghijklmnopqrstuvwx");
  parsed_output result;
  std::size_t from = 0;
  for (const auto cut : cuts) {
    collect(result, parser.feed(text.substr(from, cut - from)));
    from = cut;
  }
  collect(result, parser.feed(text.substr(from)));
  collect(result, parser.finish());
  CHECK(parser.calls() == result.calls.size());
  return result;
}

/// Parses the whole text, and checks that bytes, and pieces cut at random, within characters too, lead to the same.
inline parsed_output parse_output(const std::shared_ptr<const chat_output>& what, std::string_view text) {
  const auto whole = parse_cut(what, text, {});
  std::vector<std::size_t> all;
  for (std::size_t i = 1; i < text.size(); ++i)
    all.push_back(i);
  CAPTURE(text);
  CHECK(parse_cut(what, text, all) == whole);
  std::mt19937 random(7);
  for (int k = 0; k < 20; ++k) {
    std::vector<std::size_t> some;
    for (const auto cut : all)
      if (random() % 5 == 0)
        some.push_back(cut);
    CHECK(parse_cut(what, text, some) == whole);
  }
  return whole;
}

} // namespace troupe::test
