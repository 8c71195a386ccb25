#include "runtime/support/json/json_digits.hpp"

#include "runtime/support/json/json_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace troupe::json {
struct place_on_tape;
}

/// simdjson's serializers may see where a value stands on its document's tape.
template <>
class simdjson::internal::string_builder<troupe::json::place_on_tape> {
public:
  static tape_ref of(dom::element e) { return e.tape; }
};

namespace troupe::json {

namespace {

// The tape: words of a type (8 bits) and a value, with the number itself behind 'l', 'u' and 'd'. The first word's
// value is the length, the last word's is 0. With digits it is 1, and there follow: their count n, n entries in order,
// and the bytes.
constexpr std::uint64_t value_mask = (std::uint64_t{1} << 56) - 1;

struct digits_entry {
  std::uint64_t place, begin, size; // on the tape; among the bytes
};
constexpr std::size_t entry_words = sizeof(digits_entry) / sizeof(std::uint64_t);

bool has_digits(const simdjson::dom::document& doc) {
  return (doc.tape[(doc.tape[0] & value_mask) - 1] & value_mask) == 1;
}

/// Digits without zeros around them, and the power of ten of the first one: equal numbers have equal ones.
struct significant_digits {
  std::string digits;
  long power = 0; // 0.d1d2d3... * 10^power
  bool operator==(const significant_digits&) const = default;
};

significant_digits significant(std::string_view number) {
  significant_digits result;
  bool behind_point = false;
  for (std::size_t i = 0; i < number.size(); ++i) {
    const char c = number[i];
    if (c == 'e' || c == 'E') {
      long exponent = 0;
      const auto from = i + (i + 1 < number.size() && number[i + 1] == '+' ? 2 : 1);
      const auto read = std::from_chars(number.data() + from, number.data() + number.size(), exponent);
      constexpr long most = 1'000'000;
      result.power += read.ec == std::errc() ? std::clamp(exponent, -most, most) : number[from] == '-' ? -most : most;
      break;
    }
    if (c == '.')
      behind_point = true;
    if (c < '0' || c > '9')
      continue;
    if (!result.digits.empty() || c != '0') {
      result.digits += c;
      result.power += behind_point ? 0 : 1;
    } else if (behind_point) {
      --result.power;
    }
  }
  result.digits.erase(result.digits.find_last_not_of('0') + 1);
  if (result.digits.empty())
    result.power = 0;
  return result;
}

/// Whether the shortest digits of the double are others than these.
bool loses_digits(double nearest, std::string_view written) {
  if (written.size() <= 16) // at most 15 digits, or an exponent beside fewer
    return false;
  char shortest[32];
  const auto end = std::to_chars(shortest, shortest + sizeof shortest, nearest, std::chars_format::scientific).ptr;
  const auto of_double = significant({shortest, static_cast<std::size_t>(end - shortest)});
  return !of_double.digits.empty() && of_double != significant(written); // what is too small for a double stays 0
}

void write_with_digits(std::string& out, value v) {
  if (v.is_array()) {
    out += '[';
    for (const auto item : array(v)) {
      out += out.back() == '[' ? "" : ",";
      write_with_digits(out, item);
    }
    out += ']';
  } else if (v.is_object()) {
    out += '{';
    for (const auto [key, item] : object(v)) {
      out += out.back() == '{' ? "" : ",";
      out += json_text(key) + ':';
      write_with_digits(out, item);
    }
    out += '}';
  } else if (const auto written = digits(v)) {
    out += *written;
  } else {
    out += simdjson::minify(v);
  }
}

} // namespace

std::string_view number_tokens::next() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
        at_ += text_[at_] == '\\';
      ++at_;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      const auto end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
      const auto begin = std::exchange(at_, end);
      return text_.substr(begin, end - begin);
    } else {
      ++at_;
    }
  }
  return {};
}

bool is_wide_integer(std::string_view number) {
  if (number.size() <= 18 || number.find_first_of(".eE") != number.npos)
    return false;
  std::int64_t negative = 0;
  std::uint64_t positive = 0;
  const auto *begin = number.data(), *end = begin + number.size();
  const auto read = number.front() == '-' ? std::from_chars(begin, end, negative)
                                          : std::from_chars(begin, end, positive);
  return read.ec == std::errc::result_out_of_range;
}

std::string without_exponent(std::string_view number) {
  auto [digits, power] = significant(number);
  if (digits.empty())
    return "0";
  const std::string sign = number.front() == '-' ? "-" : "";
  if (power <= 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-power), '0') + digits;
  const auto whole = static_cast<std::size_t>(power);
  if (digits.size() <= whole)
    return sign + digits + std::string(whole - digits.size(), '0');
  return sign + digits.insert(whole, ".");
}

std::optional<std::string_view> digits(value v) {
  if (v.type() != simdjson::dom::element_type::DOUBLE)
    return std::nullopt;
  const auto at = simdjson::internal::string_builder<place_on_tape>::of(v);
  if (!has_digits(*at.doc))
    return std::nullopt;
  const auto* words = at.doc->tape.get() + (at.doc->tape[0] & value_mask);
  const auto count = static_cast<std::size_t>(*words++);
  const auto entry = [&](std::size_t i) {
    digits_entry e;
    std::memcpy(&e, words + i * entry_words, sizeof e);
    return e;
  };
  std::size_t low = 0, high = count;
  while (low < high) {
    const auto middle = (low + high) / 2;
    (entry(middle).place < at.json_index ? low : high) = entry(middle).place < at.json_index ? middle + 1 : middle;
  }
  if (low == count || entry(low).place != at.json_index)
    return std::nullopt;
  const auto* bytes = reinterpret_cast<const char*>(words + count * entry_words);
  return std::string_view(bytes + entry(low).begin, entry(low).size);
}

std::string minified(value v) {
  if (!has_digits(*simdjson::internal::string_builder<place_on_tape>::of(v).doc))
    return simdjson::minify(v);
  std::string out;
  write_with_digits(out, v);
  return out;
}

void keep_digits(simdjson::dom::document& doc, std::string_view text) {
  const auto length = static_cast<std::size_t>(doc.tape[0] & value_mask);
  std::vector<digits_entry> entries;
  std::string bytes;
  number_tokens tokens(text);
  for (std::size_t at = 1; at < length; ++at) {
    const char type = static_cast<char>(doc.tape[at] >> 56);
    if (type != 'l' && type != 'u' && type != 'd')
      continue;
    const auto written = tokens.next();
    double nearest = 0;
    std::memcpy(&nearest, &doc.tape[at + 1], sizeof nearest);
    if (type == 'd' && (is_wide_integer(written) || loses_digits(nearest, written))) {
      entries.push_back({at, bytes.size(), written.size()});
      bytes += written;
    }
    ++at;
  }
  if (entries.empty())
    return;
  const auto total = length + 1 + entries.size() * entry_words + bytes.size() / sizeof(std::uint64_t) + 1;
  auto tape = std::make_unique<std::uint64_t[]>(total);
  std::copy_n(doc.tape.get(), length, tape.get());
  tape[length - 1] |= 1;
  tape[length] = entries.size();
  std::memcpy(&tape[length + 1], entries.data(), entries.size() * sizeof(digits_entry));
  std::memcpy(&tape[length + 1 + entries.size() * entry_words], bytes.data(), bytes.size());
  doc.tape = std::move(tape);
}

} // namespace troupe::json
