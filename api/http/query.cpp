#include "api/http/query.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace troupe {

std::optional<std::string_view> query_parameter(std::string_view query, std::string_view name) {
  query = query.substr(0, query.find('#'));
  query.remove_prefix(query.starts_with('?') ? 1 : 0);
  while (!query.empty()) {
    const auto one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), one.size() + 1));
    if (one.starts_with(name) && one.substr(name.size()).starts_with('='))
      return one.substr(name.size() + 1);
  }
  return std::nullopt;
}

std::size_t query_limit(std::string_view query, std::size_t usual, std::size_t most) {
  const auto given = query_parameter(query, "limit");
  if (!given)
    return usual;
  std::size_t limit = 0;
  const auto [end, wrong] = std::from_chars(given->data(), given->data() + given->size(), limit);
  if (wrong != std::errc() || end != given->data() + given->size() || limit < 1 || limit > most)
    refuse_field("limit",
                 "must be an integer between 1 and " + std::to_string(most) + ", not `" +
                   to_utf8(given->substr(0, 40)) + '`');
  return limit;
}

} // namespace troupe
