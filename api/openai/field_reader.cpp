#include "api/openai/field_reader.hpp"

#include <sstream>

namespace troupe {

namespace {

std::string plain(double v) {
  std::ostringstream out;
  out << v;
  return out.str();
}

/// How a wrong value is shown: small ones themselves, others by their kind.
std::string shown(json::value v) {
  if (v.is_object() || v.is_array() || v.is_string() || v.is_null())
    return std::string(json::kind_of(v));
  return simdjson::minify(v);
}

} // namespace

field_reader::field_reader(json::value body, std::string path) : body_(body), path_(std::move(path)) {
  if (!body.is_object())
    throw failure(errc::bad_request, "the body must be a JSON object, not " + std::string(json::kind_of(body)));
}

void field_reader::refuse(std::string_view key, std::string_view wanted, json::value found) const {
  refuse(key, "must be " + std::string(wanted) + ", not " + shown(found));
}

void field_reader::refuse(std::string_view key, std::string_view complaint) const {
  const auto name = name_of(key);
  throw failure(errc::bad_request, "`" + name + "` " + std::string(complaint), name);
}

std::optional<double> field_reader::number(std::string_view key, number_range range) const {
  const auto found = find(key);
  if (!found)
    return std::nullopt;
  double v = 0;
  const bool is_number = found->is_number() && !found->get(v);
  if (!is_number || v > range.most || v < range.least || (range.above_least && v == range.least))
    refuse(key,
           range.above_least ? "a number above " + plain(range.least) + ", at most " + plain(range.most)
                             : "a number between " + plain(range.least) + " and " + plain(range.most),
           *found);
  return v;
}

std::optional<std::int64_t> field_reader::integer(std::string_view key, std::int64_t least, std::int64_t most) const {
  const auto found = find(key);
  if (!found)
    return std::nullopt;
  std::int64_t v = 0;
  if (!found->is_int64() || found->get(v) || v < least || v > most)
    refuse(key, "an integer between " + std::to_string(least) + " and " + std::to_string(most), *found);
  return v;
}

std::optional<bool> field_reader::boolean(std::string_view key) const {
  const auto found = find(key);
  if (!found)
    return std::nullopt;
  bool v = false;
  if (found->get(v))
    refuse(key, "true or false", *found);
  return v;
}

std::optional<std::string_view> field_reader::text(std::string_view key) const {
  const auto found = find(key);
  if (!found)
    return std::nullopt;
  std::string_view v;
  if (found->get(v))
    refuse(key, "a string", *found);
  return v;
}

std::optional<std::vector<std::int32_t>> field_reader::ids(std::string_view key, std::int64_t least, std::int64_t most,
                                                           std::size_t most_entries) const {
  const auto found = list(key, most_entries);
  if (!found)
    return std::nullopt;
  return read_ids(*this, key, *found, least, most);
}

std::optional<std::vector<std::string>> field_reader::texts(std::string_view key, std::size_t most) const {
  const auto found = find(key);
  if (!found)
    return std::nullopt;
  std::vector<std::string> result;
  auto add = [&](json::value v) {
    std::string_view text;
    if (v.get(text))
      refuse(key, "a string or a list of strings", v);
    result.emplace_back(text);
  };
  json::array items;
  if (found->get(items)) {
    add(*found);
    return result;
  }
  check_entries(*this, key, items.size(), most);
  for (auto item : items)
    add(item);
  return result;
}

std::optional<field_reader> field_reader::object(std::string_view key) const {
  const auto found = find(key);
  if (!found)
    return std::nullopt;
  if (!found->is_object())
    refuse(key, "an object", *found);
  return field_reader(*found, name_of(key) + ".");
}

std::optional<json::array> field_reader::list(std::string_view key, std::size_t most) const {
  const auto found = find(key);
  if (!found)
    return std::nullopt;
  json::array items;
  if (found->get(items))
    refuse(key, "a list", *found);
  check_entries(*this, key, items.size(), most);
  return items;
}

std::vector<std::int32_t> read_ids(const field_reader& at, std::string_view key, json::array list, std::int64_t least,
                                   std::int64_t most) {
  std::vector<std::int32_t> result;
  result.reserve(list.size());
  for (auto item : list) {
    std::int64_t v = 0;
    if (!item.is_int64() || item.get(v) || v < least || v > most)
      at.refuse(key, "a list of integers between " + std::to_string(least) + " and " + std::to_string(most), item);
    result.push_back(static_cast<std::int32_t>(v));
  }
  return result;
}

void check_entries(const field_reader& at, std::string_view key, std::size_t entries, std::size_t most) {
  if (entries > most)
    at.refuse(key, "may have at most " + std::to_string(most) + " entries, not " + std::to_string(entries));
}

} // namespace troupe
