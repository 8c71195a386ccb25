#include "tests/fuzz/mutator.hpp"

#include <algorithm>
#include <array>

namespace troupe::test {

namespace {

constexpr std::array numbers{"0",
                             "1",
                             "2",
                             "17",
                             "64",
                             "127",
                             "128",
                             "255",
                             "65536",
                             "-1",
                             "1e-9",
                             "1e9",
                             "4294967296",
                             "9223372036854775807",
                             "1e400",
                             "18446744073709551616",
                             "0.30000000000000004"};

} // namespace

std::string mutator::next() {
  auto text = pick(kept_);
  for (auto left = 1 + below(4); left > 0; --left)
    mutate(text);
  return text;
}

void mutator::mutate(std::string& text) {
  const auto at = below(text.size() + 1);
  const auto count = std::min(text.size() - at, std::size_t(1) << below(10));
  switch (below(12)) {
    case 0: change_byte(text, at); break;
    case 1: text.insert(at, 1, static_cast<char>(below(256))); break;
    case 2: text.insert(at, pick(words_)); break;
    case 3: text.replace(at, std::min(count, std::size_t(8)), pick(words_)); break;
    case 4: text.erase(at, count); break;
    case 5: text.insert(at, text.substr(below(text.size() + 1), count)); break;
    case 6: {
      const auto& other = pick(kept_);
      text.insert(at, other, below(other.size() + 1), count);
      break;
    }
    case 7: replace_number(text, at); break;
    case 8: replace_binary(text, at); break;
    case 9:
    case 10: copy_value(text); break;
    default: repeat(text, at);
  }
  text.resize(std::min(text.size(), longest_));
}

void mutator::change_byte(std::string& text, std::size_t at) {
  if (at < text.size())
    text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
}

/// Written in digits.
void mutator::replace_number(std::string& text, std::size_t from) {
  const auto digits = "0123456789";
  const auto begin = text.find_first_of(digits, from);
  if (begin == text.npos)
    return;
  const auto end = std::min(text.find_first_not_of(digits, begin), text.size());
  text.replace(begin, end - begin, numbers[below(numbers.size())]);
}

/// Little-endian, of 1 to 8 bytes: near 0, near a power of two, or near what it was.
void mutator::replace_binary(std::string& text, std::size_t at) {
  const auto width = std::size_t(1) << below(4);
  if (at + width > text.size())
    return;
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i)
    value |= std::uint64_t{static_cast<unsigned char>(text[at + i])} << (8 * i);
  const std::array<std::uint64_t, 4> bases{0, value, std::uint64_t{1} << below(64), ~std::uint64_t{0}};
  value = bases[below(bases.size())] + below(5) - 2;
  for (std::size_t i = 0; i < width; ++i)
    text[at + i] = static_cast<char>(value >> (8 * i));
}

/// Copies the text between two JSON delimiters behind a third: duplicates and moves values, members and lists.
void mutator::copy_value(std::string& text) {
  const auto mark = [&] { return std::min(text.find_first_of(",:[]{}\"\n", below(text.size() + 1)), text.size()); };
  auto begin = mark(), end = mark();
  if (begin > end)
    std::swap(begin, end);
  const auto copied = text.substr(begin, end - begin);
  text.insert(mark(), copied);
}

void mutator::repeat(std::string& text, std::size_t at) {
  const auto one = text.substr(at, 1 + below(8));
  for (auto left = std::size_t(1) << below(9); left > 0 && text.size() < longest_; --left)
    text.insert(at, one);
}

const std::vector<std::string>& json_words() {
  static const std::vector<std::string> words{"{",
                                              "}",
                                              "[",
                                              "]",
                                              ",",
                                              ":",
                                              "\"",
                                              "\\",
                                              "\\u0000",
                                              "\\ud800",
                                              "\\ud83d\\ude00",
                                              "null",
                                              "true",
                                              "false",
                                              "0",
                                              "-1",
                                              "1e999",
                                              "-0.0",
                                              "2147483648",
                                              "0.1",
                                              "1e-320",
                                              "{\"a\":{\"a\":",
                                              "[[[[[[[[",
                                              "\"type\":",
                                              "\xff",
                                              "\xc3\xa9",
                                              "\xed\xa0\x80",
                                              "\xf0\x9f\x98\x80",
                                              "\n=== ",
                                              "9223372036854775808"};
  return words;
}

} // namespace troupe::test
