// Sets of Unicode characters, and the regular expressions of their encodings: UTF-8, or the inside of a JSON string.
#pragma once

#include "runtime/guide/regex/expressions.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe::guides {

/// A set of Unicode scalar values. The encodings leave surrogates out.
class code_points {
public:
  struct range {
    char32_t low, high;
    friend bool operator==(const range&, const range&) = default;
  };

  code_points() = default;
  code_points(std::initializer_list<range> ranges) : ranges_(ranges) { tidy(); }
  static code_points all() { return {{0, 0x10FFFF}}; }
  static code_points of(char32_t c) { return {{c, c}}; }

  void add(char32_t low, char32_t high) {
    ranges_.push_back({low, high});
    tidy();
  }
  void add(std::vector<range> more) {
    ranges_.insert(ranges_.end(), more.begin(), more.end());
    tidy();
  }
  void add(const code_points& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
    tidy();
  }
  code_points complement() const;
  code_points intersection(const code_points& other) const { // by de Morgan
    auto either = complement();
    either.add(other.complement());
    return either.complement();
  }
  /// With the other case of each character (simple mappings).
  code_points both_cases() const;
  /// A general category of Unicode, "L" or "Lu"; empty if there is none of this name.
  static code_points category(std::string_view name);

  bool empty() const { return ranges_.empty(); }
  const std::vector<range>& ranges() const { return ranges_; } // sorted, apart from each other

private:
  void tidy();
  std::vector<range> ranges_;
};

/// How characters become bytes.
enum class text_encoding : std::uint8_t {
  utf8,
  /// Inside a JSON string. Characters that need no escape stand for themselves, the others are escaped in every way
  /// that JSON allows; so that each string has few spellings, and all of them are here.
  json_string,
};

/// One character of the set.
expression encoded(expressions& regex, const code_points& set, text_encoding how);
/// The texts of one string.
expression encoded(expressions& regex, std::string_view utf8, text_encoding how);
/// Any sequence of characters.
expression any_characters(expressions& regex, text_encoding how);
/// Any sequence of `least` to `most` characters.
expression any_characters(expressions& regex, text_encoding how, std::uint32_t least, std::uint32_t most);

/// A JSON string without constraints, quotes included: every escape is allowed, halves of surrogate pairs are not.
expression any_json_string(expressions& regex);

} // namespace troupe::guides
