// Typed, range-checked members of a configuration file's JSON object, for the model loader. Errors name the file, the
// key, what was found and what was expected.
#pragma once

#include "runtime/support/json.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class config_fields {
public:
  /// `name`: the file, and where in it. Throws failure(bad_file) where `object` is none.
  config_fields(json::value object, std::string name) : object_(object), name_(std::move(name)) {
    if (!object.is_object())
      throw failure(errc::bad_file, name_ + " must be an object, found " + std::string(json::kind_of(object)));
  }

  const std::string& name() const { return name_; }

  /// Whether the key is there at all, be it null.
  bool has(std::string_view key) const { return !object_.at_key(key).error(); }

  std::optional<json::value> find(std::string_view key) const { return json::find(object_, key); }

  std::optional<config_fields> object(std::string_view key) const {
    if (auto found = find(key))
      return config_fields(*found, label(key));
    return std::nullopt;
  }

  /// In [low, high].
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high) const {
    const auto found = find(key);
    if (!found)
      return std::nullopt;
    return checked(*found, label(key), low, high);
  }

  int integer(std::string_view key, int low, int high, int fallback) const {
    return static_cast<int>(integer(key, low, high).value_or(fallback));
  }

  /// One that must be there.
  int size(std::string_view key, int high) const {
    if (const auto found = integer(key, 1, high))
      return static_cast<int>(*found);
    throw failure(errc::bad_file, label(key) + " is missing");
  }

  /// Finite, in [low, high].
  std::optional<double> number(std::string_view key, double low, double high) const {
    const auto found = find(key);
    if (!found)
      return std::nullopt;
    double result = 0;
    if (!found->is_number() || found->get(result))
      wrong(label(key), "a number", *found);
    if (!(result >= low && result <= high))
      throw failure(errc::bad_file,
                    label(key) + " must be from " + text(low) + " to " + text(high) + ", found " +
                      simdjson::minify(*found));
    return result;
  }

  bool boolean(std::string_view key, bool fallback) const {
    const auto found = find(key);
    bool result = fallback;
    if (found && found->get(result))
      wrong(label(key), "a boolean", *found);
    return result;
  }

  std::optional<std::string> string(std::string_view key) const {
    const auto found = find(key);
    if (!found)
      return std::nullopt;
    std::string_view result;
    if (found->get(result))
      wrong(label(key), "a string", *found);
    return std::string(result);
  }

  /// One integer, or a list of them.
  std::optional<std::vector<std::int32_t>> integers(std::string_view key, std::int32_t low, std::int32_t high) const {
    const auto found = find(key);
    if (!found)
      return std::nullopt;
    std::vector<std::int32_t> result;
    json::array list;
    if (found->get(list))
      result.push_back(static_cast<std::int32_t>(checked(*found, label(key), low, high)));
    else
      for (json::value item : list)
        result.push_back(static_cast<std::int32_t>(checked(item, label(key), low, high)));
    return result;
  }

  /// "config.json: `key`"
  std::string label(std::string_view key) const { return name_ + ": `" + std::string(key) + "`"; }

private:
  [[noreturn]] static void wrong(const std::string& label, std::string_view expected, json::value found) {
    throw failure(errc::bad_file,
                  label + " must be " + std::string(expected) + ", found " + std::string(json::kind_of(found)));
  }

  static std::int64_t checked(json::value v, const std::string& label, std::int64_t low, std::int64_t high) {
    std::int64_t result = 0;
    if (v.type() != simdjson::dom::element_type::INT64 && v.type() != simdjson::dom::element_type::UINT64)
      wrong(label, "an integer", v);
    if (v.get(result) || result < low || result > high)
      throw failure(errc::bad_file,
                    label + " must be from " + std::to_string(low) + " to " + std::to_string(high) + ", found " +
                      simdjson::minify(v));
    return result;
  }

  static std::string text(double v) {
    auto result = std::to_string(v);
    result.erase(result.find_last_not_of('0') + 1);
    if (result.ends_with('.'))
      result.pop_back();
    return result;
  }

  json::value object_;
  std::string name_;
};

} // namespace troupe
