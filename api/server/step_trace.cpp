#include "api/server/step_trace.hpp"

#include "api/http/query.hpp"
#include "api/server/wire/watch_frames.hpp"
#include "runtime/support/text/percent_encoding.hpp"

#include <boost/asio/redirect_error.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <variant>

namespace troupe {

namespace {

constexpr int longest_trace = 30; // seconds
constexpr std::size_t most_traced_steps = 20'000;
constexpr std::size_t most_at_once = 128 << 10; // bytes of records: of text, some ten times as many
constexpr auto pause_for_more = std::chrono::milliseconds(100);

int seconds_of(std::string_view query) {
  const auto given = query_parameter(query, "seconds");
  const auto value = given || query.empty() || query_parameter(query, "model") ? given.value_or("1") : "";
  int seconds = 0;
  for (const auto c : value.substr(0, 3))
    seconds = c >= '0' && c <= '9' && seconds >= 0 ? 10 * seconds + (c - '0') : -1;
  if (value.empty() || value.size() > 3 || seconds < 1 || seconds > longest_trace)
    refuse_field("seconds", "must be a whole number from 1 to " + std::to_string(longest_trace));
  return seconds;
}

/// Somebody who watches the engine's steps.
struct watching {
  std::chrono::steady_clock::time_point end;
  std::shared_ptr<const void> place;
  std::shared_ptr<step_ring> steps;
  std::shared_ptr<const void> by_engine; // records are made as long as this lives
};

std::variant<watching, reply> begin(server_context& context, const request_scope& scope, std::string_view query) {
  try {
    watching w;
    w.end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds_of(query));
    w.place = context.place_to_watch(scope.client());
    w.steps = std::make_shared<step_ring>(most_traced_steps);
    w.by_engine = context.engine.watch_model(percent_decoded(query_parameter(query, "model").value_or("")),
                                             [steps = w.steps](const step_ring::record_ptr& one) { steps->add(one); });
    if (!w.by_engine)
      throw failure(errc::unsupported, "this server's steps leave no records");
    return w;
  } catch (...) {
    return reply::of(caught_error());
  }
}

} // namespace

asio::awaitable<bool> trace_steps(server_context& context, connection& link, const request_scope& scope,
                                  std::string_view query, answer_form form) {
  auto begun = begin(context, scope, query);
  if (const auto* refused = std::get_if<reply>(&begun)) {
    co_await link.send(*refused, form);
    co_return form.keep_alive;
  }
  auto& watched = std::get<watching>(begun);
  form.headers.emplace_back("Content-Disposition", "attachment; filename=\"troupe-trace.json\"");
  if (form.head) {
    auto nothing = reply::json({});
    co_await link.send(nothing, form);
    co_return form.keep_alive;
  }
  if (form.version < 11)
    form.keep_alive = false;
  trace_writer writer;
  std::string text;
  const auto write = [&] { text = writer.add(watched.steps->take(most_at_once).records); };
  co_await link.start_stream("application/json", form);
  asio::steady_timer more(link.bytes().get_executor());
  bool goes_on = true;
  while (goes_on) {
    goes_on = std::chrono::steady_clock::now() < watched.end && !scope.why_cut() && !context.draining;
    if (!goes_on)
      watched.by_engine.reset(); // what came is still written
    while (!watched.steps->empty() && (!goes_on || std::chrono::steady_clock::now() < watched.end)) {
      co_await context.lane_for(context.options.brief_bytes + 1).run(scope.client(), write);
      co_await link.stream(text, form);
    }
    if (!goes_on)
      break;
    boost::system::error_code ec;
    more.expires_after(pause_for_more);
    co_await more.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    check(scope.token());
  }
  co_await link.stream(writer.end(), form);
  co_await link.end_stream(form);
  co_return form.keep_alive;
}

} // namespace troupe
