#include "runtime/support/json/json.hpp"

#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/json_fault.hpp"

#include <algorithm>
#include <functional>
#include <new>
#include <vector>

namespace troupe::json {

namespace {

/// Writes integers beyond 64 bits, which simdjson refuses, as real numbers: every tokenizer_config.json that
/// transformers writes has one (`model_max_length`, 1e30 written out).
std::string with_wide_integers_as_reals(std::string_view text) {
  std::string result;
  result.reserve(text.size() + 8);
  number_tokens tokens(text);
  const char* copied = text.data();
  for (auto number = tokens.next(); !number.empty(); number = tokens.next())
    if (is_wide_integer(number)) {
      const char* end = number.data() + number.size();
      result.append(copied, end).append(".0");
      copied = end;
    }
  return result.append(copied, text.data() + text.size());
}

/// Writes the numbers that JSON lacks as strings: Python writes infinities into configurations (`time_step_limit` of
/// Mamba 2). Words within strings stay.
std::string with_words_as_strings(std::string text) {
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    quoted = c == '"' ? !quoted : quoted;
    if (quoted && c == '\\' && i + 1 < text.size()) {
      result.append(text, i++, 2);
      continue;
    }
    const auto rest = std::string_view(text).substr(i);
    const auto word = quoted          ? std::string_view()
      : rest.starts_with("-Infinity") ? rest.substr(0, 9)
      : rest.starts_with("Infinity")  ? rest.substr(0, 8)
      : rest.starts_with("NaN")       ? rest.substr(0, 3)
                                      : std::string_view();
    if (word.empty()) {
      result += c;
      continue;
    }
    result.append("\"").append(word).append("\"");
    i += word.size() - 1;
  }
  return result;
}

/// "line 3: not valid JSON: ...", and the byte where the text has one line.
/// `ahead`: bytes of the file or body in front of the text.
std::string not_valid(std::string_view text, std::size_t ahead, simdjson::error_code ec) {
  const auto found = find_fault(text);
  const bool has_lines = text.find('\n') != text.npos;
  const auto line = has_lines && found ? "line " + std::to_string(line_of_fault(text)) + ": " : std::string();
  const auto what = found && found->half_a_pair
    ? "`" + std::string(text.substr(found->at, 6)) + "` is one half of a character that takes two \\u escapes"
    : std::string(simdjson::error_message(ec));
  const auto place = has_lines || !found || text.empty() ? std::string()
    : found->at == text.size()                           ? " (at its end)"
                                                         : " (at byte " + std::to_string(ahead + found->at + 1) + ")";
  return line + "not valid JSON: " + what + place;
}

/// The first number that a double cannot hold, cut short, if the text is JSON otherwise.
std::optional<std::string> number_out_of_range(std::string_view text) {
  if (line_of_fault(text) != 0)
    return std::nullopt;
  constexpr std::size_t longest = 40;
  simdjson::dom::parser parser;
  number_tokens tokens(text);
  for (auto number = tokens.next(); !number.empty(); number = tokens.next()) {
    const auto real = std::string(number) + (is_wide_integer(number) ? ".0" : "");
    value one;
    if (parser.parse(real).get(one))
      return std::string(number.substr(0, longest)) + (number.size() > longest ? "..." : "");
  }
  return std::nullopt;
}

/// Finds duplicate keys within one object. Sorting bounds the work for any choice of keys.
class duplicate_search {
public:
  /// The path of the first duplicate in `v` ("messages[0].role"), cut at the front if long; nothing if there is none.
  std::optional<std::string> in(value v) {
    auto path = in(v, {});
    constexpr std::size_t longest = 200;
    if (path && path->size() > longest) {
      auto begin = path->size() - longest;
      while (begin < path->size() && ((*path)[begin] & 0xC0) == 0x80)
        ++begin;
      path->replace(0, begin, "...");
    }
    if (path)
      std::ranges::replace_if(
        *path, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
    return path;
  }

private:
  /// The path of a value, as a list that lives on the stack of the recursion. simdjson bounds the depth.
  struct place {
    const place* around = nullptr;
    std::string_view key;
    std::size_t index = 0;
  };

  std::optional<std::string> in(value v, const place& at) {
    if (v.is_array()) {
      std::size_t index = 0;
      for (auto item : array(v)) {
        if (item.is_object() || item.is_array())
          if (auto found = in(item, {&at, {}, index}))
            return found;
        ++index;
      }
    } else if (v.is_object()) {
      if (const auto twice = repeated(object(v)))
        return text_of({&at, *twice});
      for (auto [key, item] : object(v))
        if (item.is_object() || item.is_array())
          if (auto found = in(item, {&at, key}))
            return found;
    }
    return std::nullopt;
  }

  /// Compares hashes first, which are quick to sort; names only if two hashes are equal.
  std::optional<std::string_view> repeated(object v) {
    hashes_.clear();
    for (auto [key, item] : v)
      hashes_.push_back(std::hash<std::string_view>()(key));
    std::ranges::sort(hashes_);
    if (std::ranges::adjacent_find(hashes_) == hashes_.end())
      return std::nullopt;
    std::vector<std::string_view> names;
    for (auto [key, item] : v)
      names.push_back(key);
    std::ranges::sort(names);
    const auto found = std::ranges::adjacent_find(names);
    return found == names.end() ? std::nullopt : std::optional(*found);
  }

  static std::string text_of(const place& at) {
    if (!at.around)
      return {};
    auto result = text_of(*at.around);
    if (at.key.data() == nullptr)
      return result + '[' + std::to_string(at.index) + ']';
    return result.append(result.empty() ? "" : ".").append(at.key);
  }

  std::vector<std::size_t> hashes_;
};

} // namespace

document document::load(const std::filesystem::path& file, const file_kind& kind) {
  auto text = read_file(file, kind);
  if (text.find("Infinity") != text.npos || text.find("NaN") != text.npos)
    text = with_words_as_strings(std::move(text));
  return parse(text, file.string());
}

document document::parse(std::string_view text, std::string name, errc code) {
  constexpr std::string_view mark = "\xEF\xBB\xBF"; // some editors begin UTF-8 so
  const auto ahead = text.starts_with(mark) ? mark.size() : 0;
  text.remove_prefix(ahead);
  document result;
  result.parser_ = std::make_unique<simdjson::dom::parser>();
  result.name_ = std::move(name);
  result.code_ = code;
  auto ec = result.parser_->parse(text.data(), text.size()).get(result.root_);
  if (ec == simdjson::NUMBER_ERROR)
    ec = result.parser_->parse(with_wide_integers_as_reals(text)).get(result.root_);
  if (ec == simdjson::MEMALLOC)
    throw std::bad_alloc();
  if (const auto number = ec == simdjson::NUMBER_ERROR ? number_out_of_range(text) : std::nullopt)
    throw failure(code, result.name_ + ": the number " + *number + " is out of range, which ends at about 1.8e308");
  if (ec)
    throw failure(code, result.name_ + ": " + not_valid(text, ahead, ec));
  if (code != errc::bad_file) // files' numbers are only computed with
    keep_digits(result.parser_->doc, text);
  if (const auto twice = duplicate_search().in(result.root_))
    throw failure(code, result.name_ + ": `" + *twice + "` is given twice", *twice);
  return result;
}

std::optional<value> find(value v, std::string_view key) {
  value found;
  if (!v.is_object() || v.at_key(key).get(found) || found.is_null())
    return std::nullopt;
  return found;
}

std::string_view kind_of(value v) {
  switch (v.type()) {
    case simdjson::dom::element_type::ARRAY: return "an array";
    case simdjson::dom::element_type::OBJECT: return "an object";
    case simdjson::dom::element_type::INT64:
    case simdjson::dom::element_type::UINT64: return "an integer";
    case simdjson::dom::element_type::DOUBLE: return "a number";
    case simdjson::dom::element_type::STRING: return "a string";
    case simdjson::dom::element_type::BOOL: return "a boolean";
    default: return "null";
  }
}

} // namespace troupe::json
