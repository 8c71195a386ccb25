#include "api/server/endpoint.hpp"
#include "runtime/support/text/percent_encoding.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <optional>

namespace troupe {

namespace {

constexpr std::string_view hole = "{id}";

std::string_view path_of(std::string_view target) { return target.substr(0, target.find_first_of("?#")); }

/// What stands for {id}, empty for a pattern without it; nothing if the path does not fit.
std::optional<std::string_view> fit(std::string_view path, std::string_view pattern) {
  const auto at = pattern.find(hole);
  if (at == pattern.npos)
    return path == pattern ? std::optional<std::string_view>("") : std::nullopt;
  const auto before = pattern.substr(0, at), behind = pattern.substr(at + hole.size());
  if (path.size() <= before.size() + behind.size() || !path.starts_with(before) || !path.ends_with(behind))
    return std::nullopt;
  return path.substr(before.size(), path.size() - before.size() - behind.size());
}

struct found_path {
  std::string_view pattern; // empty: there is none
  std::string_view id;
};

found_path look_up(std::string_view path) {
  for (const auto& row : endpoints())
    if (const auto id = fit(path, row.path))
      return {row.path, *id};
  return {};
}

bool is_below(std::string_view path, std::string_view row) {
  return path.size() > row.size() && path.starts_with(row) && path[row.size()] == '/';
}

/// "/api/" of "/api/tags".
std::string_view first_segment(std::string_view path) { return path.substr(0, path.find('/', 1)); }

/// What was probably meant by a path that is none: clients are told a base with /v1 where they add it themselves, or
/// without it where they do not, or one with a slash at its end. Empty: no idea.
std::string probably_meant(std::string_view path) {
  constexpr std::size_t longest = 200;
  while (path.ends_with('/'))
    path.remove_suffix(1);
  if (path.size() > longest)
    return {};
  for (std::size_t at = 0; at < path.size(); at = std::min(path.find('/', at + 1), path.size()))
    for (const auto* before : {"", "/v1"})
      if (auto meant = before + std::string(path.substr(at)); !look_up(meant).pattern.empty())
        return meant;
  return {};
}

void add_method(std::string& to, std::string_view method) {
  const auto add = [&](std::string_view one) { to += (to.empty() ? "" : ", ") + std::string(one); };
  if (to.find(method) != to.npos)
    return;
  add(method);
  if (method == "GET")
    add("HEAD");
}

} // namespace

std::string allowed_methods(std::string_view target) {
  const auto path = path_of(target);
  const auto pattern = look_up(path).pattern;
  std::string result;
  for (const auto& row : endpoints())
    if (path == "*" || row.path == pattern)
      add_method(result, row.method);
  return result.empty() ? result : result + ", OPTIONS";
}

std::variant<found_endpoint, reply> find_endpoint(std::string_view method, std::string_view target) {
  const auto path = path_of(target);
  const auto found = look_up(path);
  if (found.pattern.empty()) {
    const auto meant = probably_meant(path);
    return reply::of(
      {errc::not_found,
       "there is nothing at " + to_utf8(path) + (meant.empty() ? "" : "; " + to_utf8(meant) + " is probably meant"),
       {}});
  }
  std::string methods;
  for (const auto& row : endpoints()) {
    if (row.path != found.pattern)
      continue;
    if (method == row.method || (method == "HEAD" && row.method == "GET"))
      return found_endpoint{&row, to_utf8(percent_decoded(found.id)), std::string(target.substr(path.size()))};
    methods += (methods.empty() ? "" : " or ") + std::string(row.method);
  }
  auto result = reply::of({errc::bad_request, to_utf8(path) + " takes " + methods + ", not " + to_utf8(method), {}});
  result.status = 405;
  result.headers.emplace_back("Allow", allowed_methods(target));
  return result;
}

error_writer error_format_at(std::string_view target) {
  const auto path = path_of(target);
  const auto pattern = look_up(path).pattern;
  const auto format_of_first = [](auto is_like) {
    const auto found = std::ranges::find_if(endpoints(), is_like);
    return found == endpoints().end() ? nullptr : found->error_format;
  };
  if (!pattern.empty())
    return format_of_first([&](const endpoint& row) { return row.path == pattern; });
  if (const auto format = format_of_first([&](const endpoint& row) { return is_below(path, row.path); }))
    return format;
  return format_of_first([&](const endpoint& row) { return first_segment(row.path) == first_segment(path); });
}

std::string list_endpoints(std::size_t width) {
  std::string result, line;
  for (const auto& row : endpoints()) {
    const bool socket = std::holds_alternative<upgraded>(row.what);
    const auto entry = std::string(socket ? "WebSocket" : row.method) + ' ' + std::string(row.path);
    if (!line.empty() && line.size() + 2 + entry.size() + 1 > width) {
      result += line + ",\n";
      line.clear();
    }
    line += (line.empty() ? "  " : ", ") + entry;
  }
  return result + line;
}

} // namespace troupe
