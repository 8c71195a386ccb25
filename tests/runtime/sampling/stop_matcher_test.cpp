#include "runtime/sampling/stop_matcher.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace troupe;

namespace {

// The output that the matcher must have emitted after `text`, of which `passed` bytes came without stopping, found by
// trying every prefix.
struct outcome {
  std::string emitted = {};
  bool stopped = false;
  std::size_t which = 0;
};

outcome naive(const std::vector<std::string>& stops, const std::string& text, std::size_t passed) {
  for (std::size_t end = passed + 1; end <= text.size(); ++end) {
    const auto prefix = text.substr(0, end);
    std::size_t best = stops.size();
    for (std::size_t i = 0; i < stops.size(); ++i)
      if (!stops[i].empty() && prefix.ends_with(stops[i]))
        if (best == stops.size() || stops[i].size() > stops[best].size())
          best = i;
    if (best < stops.size())
      return {prefix.substr(0, end - stops[best].size()), true, best};
  }
  std::size_t held = 0;
  for (const auto& stop : stops)
    for (std::size_t n = 1; n < stop.size(); ++n)
      if (text.ends_with(stop.substr(0, n)))
        held = std::max(held, n);
  return {text.substr(0, text.size() - held)};
}

} // namespace

TEST_CASE("the text is cut before a stop string that arrives in pieces") {
  stop_matcher matcher({"\n\nUser:"});
  CHECK(matcher.push("Hello.\n").text == "Hello.");
  CHECK(matcher.push("\nUs").text == "");
  const auto end = matcher.push("er: hi");
  CHECK(end.stopped);
  CHECK(end.which == 0);
  CHECK(end.text == "");
  CHECK(matcher.push("more").text == "");
  CHECK(matcher.push("more").stopped);
  CHECK(matcher.finish() == "");
}

TEST_CASE("held-back text that turns out to be no stop string is emitted") {
  stop_matcher matcher({"aab"});
  CHECK(matcher.push("aa").text == "");
  CHECK(matcher.push("a").text == "a");
  CHECK(matcher.push("c").text == "aac");
  CHECK(matcher.push("a").text == "");
  CHECK(matcher.finish() == "a");
}

TEST_CASE("the match that completes first wins, then the one that starts earliest") {
  const auto push = [](std::vector<std::string> stops, std::string_view text) {
    return stop_matcher(stop_strings(std::move(stops))).push(text);
  };
  CHECK(push({"abcd", "bc"}, "xabcd").text == "xa");
  CHECK(push({"abcd", "bc"}, "xabcd").which == 1);
  CHECK(push({"b", "aab"}, "aaab").text == "a");
  CHECK(push({"b", "aab"}, "aaab").which == 1);
  CHECK(push({"b", "b"}, "b").which == 0);
}

TEST_CASE("without stop strings everything passes at once") {
  stop_matcher none({});
  CHECK(none.push("text").text == "text");
  CHECK_FALSE(none.push("text").stopped);
}

TEST_CASE("characters come out whole") {
  stop_matcher matcher({"éa"});
  CHECK(matcher.push("xè").text == "xè");
  CHECK(matcher.push("é").text == "");
  CHECK(matcher.push("è").text == "éè");
}

TEST_CASE("after every piece the matcher has emitted what a naive search allows") {
  std::mt19937 random(1);
  int matched = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto word = [&](std::size_t longest) {
      std::string text(1 + random() % longest, 'a');
      for (auto& c : text)
        c = static_cast<char>('a' + random() % (2 + round % 2));
      return text;
    };
    std::vector<std::string> stops;
    for (auto n = 1 + random() % 5; n > 0; --n)
      stops.push_back(word(8));
    stop_matcher matcher(stops);
    const auto text = word(40);
    std::string emitted;
    outcome expected;
    const auto stops_from = round % 3 == 0 ? random() % 20 : 0;
    std::size_t passed = 0;
    for (std::size_t at = 0, size; at < text.size() && !expected.stopped; at += size) {
      size = random() % 6;
      const bool stopping = at >= stops_from;
      const auto result = matcher.push(std::string_view(text).substr(at, size), stopping);
      emitted += result.text;
      passed = stopping ? passed : std::min(at + size, text.size());
      expected = naive(stops, text.substr(0, at + size), passed);
      REQUIRE(emitted == expected.emitted);
      REQUIRE(result.stopped == expected.stopped);
      if (expected.stopped)
        REQUIRE(result.which == expected.which);
    }
    emitted += matcher.finish();
    REQUIRE(emitted == (expected.stopped ? expected.emitted : text));
    matched += expected.stopped;
  }
  CHECK(matched > 1000);
}

TEST_CASE("time is linear in the text and does not depend on the number of stop strings") {
  // A naive search would need 10^9 steps here.
  std::vector<std::string> stops;
  for (int i = 33; i < 97; ++i)
    stops.push_back(std::string(static_cast<std::size_t>(i - 33), 'a') + "b");
  stop_matcher matcher(stops);
  const std::string text(1000000, 'a');
  CHECK(matcher.push(text).text.size() == text.size() - 63);
}

TEST_CASE("matchers of one request share its automaton, which is small") {
  std::vector<std::string> stops;
  for (char c = ' '; c < ' ' + 64; ++c)
    stops.push_back(std::string(64, c)); // the largest number of nodes
  const stop_strings shared(stops);
  stop_matcher one(shared), other(shared);
  CHECK(sizeof(stop_matcher) < 128);
  CHECK(one.push(std::string(63, 'A')).text.empty());
  CHECK(other.push("B").text.empty());
  CHECK(one.push("A").stopped);
  CHECK(other.finish() == "B");
}
