#include "api/server/answers/answers.hpp"
#include "api/server/page_files.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/ascii.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

namespace {

/// Nothing of other hosts, no inline scripts, and no HTML from strings: what a model writes cannot become a part of the
/// page.
constexpr std::string_view page_policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src "
  "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
  "trusted-types 'none'";

/// The policy of the frame that runs functions which a user wrote for a model's tools: they may compute, and reach
/// nothing.
constexpr std::string_view sandbox_policy =
  "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'self'";

constexpr std::string_view sandbox_name = "sandbox.html";

constexpr auto types = std::to_array<std::pair<std::string_view, std::string_view>>({
  {".html", "text/html; charset=utf-8"},
  {".js", "text/javascript; charset=utf-8"},
  {".css", "text/css; charset=utf-8"},
  {".svg", "image/svg+xml"},
  {".json", "application/json"},
});

std::string_view type_of(std::string_view name) {
  const auto found = std::ranges::find_if(types, [&](const auto& one) { return name.ends_with(one.first); });
  return found == types.end() ? "application/octet-stream" : found->second;
}

reply page_reply(std::string_view name, std::string body) {
  reply result{200, std::move(body), std::string(type_of(name)), {}};
  result.headers = {{"Content-Security-Policy", std::string(name == sandbox_name ? sandbox_policy : page_policy)},
                    {"X-Content-Type-Options", "nosniff"},
                    {"Referrer-Policy", "no-referrer"},
                    {"Cross-Origin-Opener-Policy", "same-origin"},
                    {"Cache-Control", "no-cache"}}; // another version of the server has other files
  return result;
}

/// A header's list names the type, and not with a weight of 0.
bool accepts_html(std::string_view accept) {
  auto lower = ascii_lower(accept);
  std::erase(lower, ' ');
  const auto at = lower.find("text/html");
  if (at == lower.npos)
    return false;
  const auto range = lower.substr(at, lower.find(',', at) - at);
  return range.find(";q=0,") == range.npos && !range.ends_with(";q=0") && !range.ends_with(";q=0.0");
}

/// The numeric settings of sampling, for the page's form.
std::string settings_json() {
  std::vector<std::string> all;
  const auto add = [&](const auto& setting, auto initial) {
    all.push_back(json_object()
                    .text("name", setting.name)
                    .flag("whole", std::is_integral_v<decltype(initial)>)
                    .number("least", setting.least)
                    .number("most", setting.most)
                    .number("initial", initial)
                    .text("help", setting.help)
                    .str());
  };
  sampling_fields::for_each([&](const auto& field) {
    if (field.sources.request && *field.help)
      add(field, sampling_params{}.*field.member);
  });
  for (const auto* each : repertoire())
    for (const auto& option : each->options)
      if (option.in(technique_option::setting)) {
        const auto initial = static_cast<float>(to_real(option.fallback).value_or(0));
        option.what == technique_option::kind::integer ? add(option, static_cast<int>(initial)) : add(option, initial);
      }
  return json_list(all);
}

} // namespace

reply greet(const call& c) {
  auto result = c.page && accepts_html(c.accept) ? serve_page_file({.id = "index.html",
                                                                    .page = c.page,
                                                                    .engine = c.engine,
                                                                    .models = c.models,
                                                                    .counted = c.counted,
                                                                    .stored = c.stored,
                                                                    .requests = c.requests})
                                                 : reply::text("Ollama is running"); // which its clients look for
  result.headers.emplace_back("Vary", "Accept");
  return result;
}

reply serve_page_file(const call& c) {
  if (!c.page)
    throw failure(errc::not_found, "this server has no web page (--no-page)");
  if (c.id == "settings.json")
    return page_reply(c.id, settings_json());
  const auto found = std::ranges::find(page_files(), c.id, &page_file::name);
  if (found == page_files().end())
    throw failure(errc::not_found, "the web page has no file " + to_utf8(c.id));
  return page_reply(c.id, std::string(found->content));
}

} // namespace troupe
