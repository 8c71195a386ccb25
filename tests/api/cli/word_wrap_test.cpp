#include "api/cli/terminal/word_wrap.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <sstream>

using namespace troupe::cli;

namespace {

/// `text` as it arrives in pieces of so many bytes; only for ASCII.
std::string streamed(std::string_view text, std::size_t columns, std::size_t piece) {
  word_wrap lines;
  std::string all;
  for (std::size_t at = 0; at < text.size(); at += piece)
    all += lines.add(text.substr(at, piece), columns);
  return all + lines.finish(columns);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;)
    words.push_back(word);
  return words;
}

} // namespace

TEST_CASE("Lines are broken between words, however the text arrives") {
  for (const std::size_t piece : {1, 2, 3, 100}) {
    CHECK(streamed("the quick brown fox", 10, piece) == "the quick\nbrown fox");
    CHECK(streamed("the quick  brown fox", 10, piece) == "the quick\nbrown fox");
    CHECK(streamed("0123456789 a", 10, piece) == "0123456789\na"); // a word as wide as the line
    CHECK(streamed("one\n\n    two", 10, piece) == "one\n\n    two");
    CHECK(streamed("see https://example.org/x now", 10, piece) == "see\nhttps://example.org/x now");
    CHECK(streamed("        deep in", 10, piece) == "      deep\nin"); // rather than a broken word
    CHECK(streamed("", 10, piece).empty());
  }
}

TEST_CASE("Words are shown once they are complete, and not before") {
  word_wrap lines;
  CHECK(lines.add("Once upon", 20) == "Once");
  CHECK(lines.add(" a", 20) == " upon");
  CHECK(lines.add(" time.\n", 20) == " a time.\n");
  CHECK(lines.finish(20).empty());
}

TEST_CASE("Wide characters take two columns, and a line may be broken between them") {
  use_utf8_locale();
  const std::string sun = "\xE6\x97\xA5", accent = "e\xCC\x81"; // one character of two columns; two in one column
  std::string seven, broken;
  for (int i = 0; i < 7; ++i) {
    seven += sun;
    broken += (i == 5 ? "\n" : "") + sun;
  }
  CHECK(streamed(seven, 10, 1000) == broken);
  std::string narrow;
  for (int i = 0; i < 10; ++i)
    narrow += accent;
  CHECK(streamed(narrow + " x", 10, 1000) == narrow + "\nx");
}

TEST_CASE("Any text keeps its words and its line breaks, and no line is too long unless a word is") {
  std::mt19937 random(7);
  const std::string letters = "abc  \n";
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (auto left = random() % 200; left > 0; --left)
      text += letters[random() % letters.size()];
    const auto result = streamed(text, 10, 1 + random() % 5);
    INFO(text);
    const auto words = words_of(text);
    CHECK(words_of(result) == words);
    std::istringstream lines(result);
    for (std::string line; std::getline(lines, line);)
      if (line.size() > 10) {
        const auto first = words_of(line).at(0).size();
        CHECK((words_of(line).size() == 1 || first > 10));
      }
    CHECK(std::ranges::count(result, '\n') >= std::ranges::count(text, '\n'));
  }
}

TEST_CASE("A whole text is wrapped and indented by paragraphs") {
  CHECK(wrapped("the quick brown fox\nand more", 10) == "the quick\nbrown fox\nand more");
  CHECK(wrapped("the quick brown fox", 14, 4) == "the quick\n    brown fox");
  CHECK(wrapped("", 10).empty());
}

TEST_CASE("An emoji of several characters, or a letter and its accents, stay on one line") {
  use_utf8_locale();
  const std::string family = "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
                    thumb = "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD", flag = "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA",
                    letter = "e\xCC\x81";
  for (const auto& whole : {family, thumb, flag, letter})
    for (std::size_t ahead = 0; ahead < 14; ++ahead) {
      word_wrap lines;
      std::string all;
      const auto text = std::string(ahead, 'x') + ' ' + whole + whole + " y";
      for (std::size_t at = 0; at < text.size();) { // a character at a time
        auto end = at + 1;
        while (end < text.size() && (text[end] & 0xc0) == 0x80)
          ++end;
        all += lines.add(text.substr(at, end - at), 12);
        at = end;
      }
      all += lines.finish(12);
      const auto first = all.find(whole);
      REQUIRE(first != std::string::npos);
      CHECK(all.find(whole, first + whole.size()) != std::string::npos);
    }
}
