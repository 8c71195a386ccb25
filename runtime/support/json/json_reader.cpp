#include "runtime/support/json/json_reader.hpp"

#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/whole_number.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <cmath>

namespace troupe::json {

// -- wordings -----------------------------------------------------------------

namespace {

/// The value itself in backticks, unless it is long or a container.
std::string quoted_value(value v, bool) {
  std::string_view text;
  if (!v.get_string().get(text))
    return text.size() <= 40 && is_utf8(text) ? "`" + std::string(text) + "`" : std::string(kind_of(v));
  return v.is_object() || v.is_array() ? std::string(kind_of(v)) : "`" + minified(v) + "`";
}

/// A value that is out of range itself, one of another kind by its kind.
std::string value_or_kind(value v, bool right_kind) { return right_kind ? minified(v) : std::string(kind_of(v)); }

/// Scalars other than strings themselves, anything else by its kind.
std::string scalar_or_kind(value v, bool) {
  return v.is_object() || v.is_array() || v.is_string() || v.is_null() ? std::string(kind_of(v)) : minified(v);
}

std::string from_to(const std::string& low, const std::string& high) { return "from " + low + " to " + high; }

std::string kind_from_to(std::string_view kind, const std::string& low, const std::string& high, bool, bool) {
  return std::string(kind) + " " + from_to(low, high);
}

std::string kind_or_range(std::string_view kind, const std::string& low, const std::string& high, bool,
                          bool right_kind) {
  return right_kind ? from_to(low, high) : std::string(kind);
}

std::string kind_between(std::string_view kind, const std::string& low, const std::string& high, bool above_low, bool) {
  return std::string(kind) + (above_low ? " above " + low + ", at most " + high : " between " + low + " and " + high);
}

/// Six significant digits, as streams print it.
std::string text_of(double v) { return to_general(v); }

} // namespace

constinit const wording tokenizer_wording{.root = ": the file",
                                          .joint = ".",
                                          .found = ", not ",
                                          .boolean = "a boolean",
                                          .list = "an array",
                                          .shown = quoted_value,
                                          .print = to_decimal,
                                          .range = kind_from_to};

constinit const wording config_wording{.root = "",
                                       .joint = "`: `",
                                       .found = ", found ",
                                       .boolean = "a boolean",
                                       .list = "an array",
                                       .shown = value_or_kind,
                                       .print = to_decimal,
                                       .range = kind_or_range};

constinit const wording body_wording{.code = errc::bad_request,
                                     .names_param = true,
                                     .root = "the body",
                                     .joint = ".",
                                     .found = ", not ",
                                     .boolean = "true or false",
                                     .list = "a list",
                                     .shown = scalar_or_kind,
                                     .print = text_of,
                                     .range = kind_between};

// -- the value itself ---------------------------------------------------------

json::object reader::object() const {
  json::object result;
  if (value_.get_object().get(result))
    expected("an object");
  return result;
}

json::array reader::array() const {
  json::array result;
  if (value_.get_array().get(result))
    expected(how_->list);
  return result;
}

std::string_view reader::string() const {
  std::string_view text;
  if (value_.get_string().get(text))
    expected("a string");
  if (!is_utf8(text)) // an escaped half of a surrogate pair
    expected("valid Unicode");
  return text;
}

std::string_view reader::character() const {
  const auto text = string();
  if (count_characters(text) != 1)
    expected("one character");
  return text;
}

bool reader::boolean() const {
  bool result = false;
  if (value_.get_bool().get(result))
    expected(how_->boolean);
  return result;
}

std::optional<std::int64_t> whole_number(value v) {
  std::int64_t result = 0;
  if (v.is_int64() && !v.get(result))
    return result;
  double real = 0;
  constexpr double most_exact = 9007199254740992; // 2^53
  if (!v.is_double() || v.get(real) || std::trunc(real) != real || std::abs(real) > most_exact)
    return std::nullopt;
  return static_cast<std::int64_t>(real);
}

std::int64_t reader::integer(std::int64_t low, std::int64_t high) const {
  const bool of_request = how_->code == errc::bad_request;
  const auto result = of_request || value_.is_int64() ? whole_number(value_) : std::nullopt;
  if (result && *result >= low && *result <= high)
    return *result;
  const bool right_kind = result || value_.is_int64() || value_.is_uint64();
  expected(how_->range("an integer", std::to_string(low), std::to_string(high), false, right_kind), right_kind);
}

double reader::number(double low, double high, bool above_low) const {
  double result = 0;
  const bool right_kind = value_.is_number() && !value_.get(result);
  if (!right_kind || !(result >= low && result <= high) || (above_low && result == low))
    expected(how_->range("a number", how_->print(low), how_->print(high), above_low, right_kind), right_kind);
  return result;
}

double reader::number() const {
  double result = 0;
  if (!value_.is_number() || value_.get(result))
    expected("a number");
  return result;
}

std::vector<reader> reader::items() const {
  std::vector<reader> result;
  for (value item : array())
    result.push_back({item, source_, path_ + "[" + std::to_string(result.size()) + "]", *how_});
  return result;
}

// -- members ------------------------------------------------------------------

std::optional<value> reader::find(std::string_view key) const {
  object(); // refuses anything else
  return json::find(value_, key);
}

std::optional<reader> reader::child(std::string_view key) const {
  const auto found = find(key);
  return found ? std::optional(member(*found, key)) : std::nullopt;
}

std::optional<reader> reader::object(std::string_view key) const {
  auto found = child(key);
  if (found)
    found->object();
  return found;
}

std::optional<std::string> reader::string(std::string_view key) const {
  const auto found = text(key);
  return found ? std::optional(std::string(*found)) : std::nullopt;
}

std::optional<std::string_view> reader::text(std::string_view key) const {
  const auto found = find(key);
  if (!found)
    return std::nullopt;
  std::string_view result;
  if (found->get(result))
    member(*found, key).expected("a string");
  return result;
}

std::optional<bool> reader::boolean(std::string_view key) const {
  const auto found = child(key);
  return found ? std::optional(found->boolean()) : std::nullopt;
}

std::optional<std::int64_t> reader::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const auto found = child(key);
  return found ? std::optional(found->integer(low, high)) : std::nullopt;
}

std::optional<double> reader::number(std::string_view key, double low, double high, bool above_low) const {
  const auto found = child(key);
  return found ? std::optional(found->number(low, high, above_low)) : std::nullopt;
}

std::optional<std::vector<std::int32_t>> reader::integers(std::string_view key, std::int32_t low,
                                                          std::int32_t high) const {
  const auto found = find(key);
  if (!found)
    return std::nullopt;
  std::vector<std::int32_t> result;
  const auto add = [&](value v) { result.push_back(static_cast<std::int32_t>(member(v, key).integer(low, high))); };
  json::array list;
  if (found->get(list))
    add(*found);
  else
    for (value item : list)
      add(item);
  return result;
}

reader reader::at(std::string_view key) const {
  if (auto found = child(key))
    return *std::move(found);
  member(value_, key).refuse("is missing");
}

// -- errors -------------------------------------------------------------------

std::string reader::path(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + std::string(how_->joint) + std::string(key);
}

std::string reader::label() const {
  if (path_.empty())
    return source_ + std::string(how_->root);
  return source_ + (source_.empty() ? "`" : ": `") + path_ + "`";
}

void reader::refuse(std::string_view what, errc code) const {
  throw failure(code, label() + " " + std::string(what), how_->names_param ? path_ : std::string());
}

void reader::expected(std::string_view wanted, bool right_kind) const {
  refuse("must be " + std::string(wanted) + std::string(how_->found) + how_->shown(value_, right_kind));
}

} // namespace troupe::json
