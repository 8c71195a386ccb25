#include "runtime/support/json/field_reader.hpp"

#include "runtime/support/json/whole_number.hpp"

namespace troupe {

field_reader::field_reader(json::value body, std::string path) : json::reader(body, {}, path, json::body_wording) {
  if (!body.is_object())
    throw failure(errc::bad_request,
                  (path.empty() ? "the body" : '`' + path + '`') + " must be a JSON object, not " +
                    std::string(json::kind_of(body)));
}

void field_reader::refuse(std::string_view key, std::string_view wanted, json::value found) const {
  member(found, key).expected(wanted);
}

void field_reader::refuse(std::string_view key, std::string_view complaint) const {
  member(body(), key).refuse(complaint);
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
  const auto found = json::reader::object(key);
  return found ? std::optional(field_reader(found->get(), found->path())) : std::nullopt;
}

std::optional<json::array> field_reader::list(std::string_view key, std::size_t most) const {
  const auto found = child(key);
  if (!found)
    return std::nullopt;
  const auto items = found->array();
  check_entries(*this, key, items.size(), most);
  return items;
}

std::vector<std::int32_t> read_ids(const field_reader& at, std::string_view key, json::array list, std::int64_t least,
                                   std::int64_t most) {
  std::vector<std::int32_t> result;
  result.reserve(list.size());
  for (auto item : list) {
    const auto v = json::whole_number(item);
    if (!v || *v < least || *v > most)
      at.refuse(key, "a list of integers between " + std::to_string(least) + " and " + std::to_string(most), item);
    result.push_back(static_cast<std::int32_t>(*v));
  }
  return result;
}

void check_entries(const field_reader& at, std::string_view key, std::size_t entries, std::size_t most) {
  if (entries > most)
    at.refuse(key, "may have at most " + std::to_string(most) + " entries, not " + std::to_string(entries));
}

} // namespace troupe
