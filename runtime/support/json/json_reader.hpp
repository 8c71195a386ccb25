// Typed, range-checked access to JSON whose errors name the value: "tokenizer.json: `decoder.decoders[2].content` must
// be a string, not null". One reader serves configuration files, tokenizer files and request bodies; a `wording` holds
// the differences between their messages, on which clients and tests rely.
#pragma once

#include "runtime/support/json/json.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::json {

/// How a reader phrases its errors. Adding a source of JSON takes one more constant in json_reader.cpp.
struct wording {
  errc code = errc::bad_file;
  bool names_param = false; // the path becomes the error's `param`
  std::string_view root;    // follows the source's name in errors about the whole document
  std::string_view joint;   // between the path of an object and a key
  std::string_view found;   // between the expectation and the value found
  std::string_view boolean; // "a boolean"
  std::string_view list;    // "an array"
  /// `right_kind`: the value is of the expected kind, but out of range.
  std::string (*shown)(value found, bool right_kind);
  std::string (*print)(double limit);
  /// "an integer from 1 to 9"; `above_low`: the lower limit is excluded.
  std::string (*range)(std::string_view kind, const std::string& low, const std::string& high, bool above_low,
                       bool right_kind);
};

extern const wording tokenizer_wording; // tokenizer.json: `a.b[2]` must be an integer from 0 to 9, not `x`
extern const wording config_wording;    // config.json: `a`: `b` must be from 0 to 9, found 10
extern const wording body_wording;      // `a.b` must be an integer between 0 and 9, not a string

class reader {
public:
  explicit reader(const document& from, const wording& how = config_wording)
    : reader(from.root(), from.name(), {}, how) {}
  /// `source` is the file's name, or empty; `path` leads to `v` within it.
  reader(value v, std::string source, std::string path, const wording& how)
    : value_(v), source_(std::move(source)), path_(std::move(path)), how_(&how) {}

  value get() const { return value_; }
  const std::string& source() const { return source_; }

  // -- the value itself: throw failure when it is of another kind -------------

  bool is_object() const { return value_.is_object(); }
  json::object object() const;
  json::array array() const;
  std::string_view string() const;    // valid UTF-8
  std::string_view character() const; // exactly one code point, in UTF-8
  bool boolean() const;
  /// In [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high) const;
  /// Finite, in [low, high], or in (low, high].
  double number(double low, double high, bool above_low = false) const;
  /// Any number.
  double number() const;
  std::vector<reader> items() const;

  // -- members: nothing when absent or null -----------------------------------

  std::optional<value> find(std::string_view key) const;
  std::optional<reader> child(std::string_view key) const;
  bool has(std::string_view key) const { return find(key).has_value(); }
  /// Whether the key is there, null or not.
  bool contains(std::string_view key) const { return !object().at_key(key).error(); }
  std::optional<reader> object(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  bool boolean(std::string_view key, bool fallback) const { return boolean(key).value_or(fallback); }
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  int integer(std::string_view key, int low, int high, int fallback) const {
    return static_cast<int>(integer(key, low, high).value_or(fallback));
  }
  std::optional<double> number(std::string_view key, double low, double high, bool above_low = false) const;
  /// One integer or a list of them.
  std::optional<std::vector<std::int32_t>> integers(std::string_view key, std::int32_t low, std::int32_t high) const;

  // -- members that must be there: throw failure when absent or null ----------

  reader at(std::string_view key) const;
  /// In [1, high].
  int size(std::string_view key, int high) const { return static_cast<int>(at(key).integer(1, high)); }

  // -- errors -----------------------------------------------------------------

  /// "config.json: `key`".
  std::string label() const;
  std::string label(std::string_view key) const { return member(value_, key).label(); }
  /// "stream_options.include_usage".
  const std::string& path() const { return path_; }
  std::string path(std::string_view key) const;

  /// "<label> <what>".
  [[noreturn]] void refuse(std::string_view what) const { refuse(what, how_->code); }
  [[noreturn]] void refuse(std::string_view what, errc code) const;
  /// "<label> must be <wanted>, not <what the value is>".
  [[noreturn]] void expected(std::string_view wanted, bool right_kind = false) const;

protected:
  reader member(value v, std::string_view key) const { return {v, source_, path(key), *how_}; }

private:
  value value_;
  std::string source_;
  std::string path_; // empty at the root
  const wording* how_;
};

} // namespace troupe::json
