#include "api/openai/responses/input_page.hpp"

#include "api/http/query.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <vector>

namespace troupe {

namespace {

constexpr std::size_t usual_limit = 20, most_limit = 100;

bool ascends(std::string_view query) {
  const auto order = query_parameter(query, "order").value_or("desc");
  if (order != "asc" && order != "desc")
    refuse_field("order", "must be \"asc\" or \"desc\", not \"" + to_utf8(order.substr(0, 40)) + '"');
  return order == "asc";
}

std::string_view id_of(json::value item) { return item["id"]; }

} // namespace

std::string input_page(std::string_view items, std::string_view query) {
  const auto limit = query_limit(query, usual_limit, most_limit);
  const auto document = json::document::parse(items, "the input items", errc::internal);
  std::vector<json::value> all;
  for (auto item : json::array(document.root()))
    all.push_back(item);
  if (!ascends(query))
    std::ranges::reverse(all);
  auto first = all.begin();
  if (const auto after = query_parameter(query, "after")) {
    first = std::ranges::find(all, *after, id_of);
    if (first == all.end())
      refuse_field("after", "names no input item of this response");
    ++first;
  }
  const auto end = first + std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(limit), all.end() - first);
  std::vector<std::string> page;
  for (auto it = first; it != end; ++it)
    page.push_back(json::minified(*it));
  const auto id = [](auto at) { return json_text(id_of(*at)); };
  return json_object()
    .text("object", "list")
    .raw("data", json_list(page))
    .raw("first_id", page.empty() ? "null" : id(first))
    .raw("last_id", page.empty() ? "null" : id(end - 1))
    .flag("has_more", end != all.end())
    .str();
}

} // namespace troupe
