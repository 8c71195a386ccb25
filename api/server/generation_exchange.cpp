#include "api/server/generation_exchange.hpp"

#include "api/openai/openai_response.hpp"
#include "api/server/request_set.hpp"

#include <optional>

namespace troupe {

namespace {

struct parsed_request {
  std::shared_ptr<const served_model> model;
  generation_request request;
  std::shared_ptr<const void> place; // of the key's quota
  std::optional<error> wrong;
};

parsed_request parse(const service& engine, dialect speaks, const std::string& body, const std::stop_token& stop) {
  parsed_request result;
  try {
    check(stop); // it may have waited for long
    result.model = ready_model(engine);
    const auto document = json::document::parse(body, "the body", errc::bad_request);
    result.request = parse_generation(speaks, field_reader(document.root()), *result.model, stop);
  } catch (...) {
    result.wrong = caught_error();
  }
  return result;
}

/// The client did not cancel, so whoever did is the server.
std::optional<error> interruption(const done_event& done) {
  for (const auto& choice : done.choices)
    if (choice.reason == finish_reason::cancelled)
      return error{errc::unavailable, "the request was cancelled by the server", {}};
  return std::nullopt;
}

/// Feeds `events` to the writer. `out` gets a stream's text; `open` counts requests that have not ended.
std::optional<error> digest(std::vector<request_set::item> events, response_writer& writer, request_record& record,
                            bool stream, std::size_t& open, std::string& out) {
  for (auto& [key, what] : events) {
    std::optional<error> failed;
    record.see(what);
    if (const auto* token = std::get_if<token_event>(&what)) {
      if (stream)
        out += writer.chunk(key, *token);
      else
        writer.add(key, *token);
    } else if (const auto* done = std::get_if<done_event>(&what)) {
      --open;
      writer.add(key, *done);
      failed = interruption(*done);
    } else {
      failed = std::get<error>(what);
    }
    if (failed)
      return failed;
  }
  return std::nullopt;
}

std::size_t count_sequences(const std::vector<generation>& prompts) {
  std::size_t result = 0;
  for (const auto& one : prompts)
    result += static_cast<std::size_t>(one.sampling.n);
  return result;
}

asio::awaitable<parsed_request> parse_on_lane(server_context& context, dialect speaks, const std::string& body,
                                              const request_scope& scope) {
  parsed_request result;
  const auto work = [&, stop = scope.token()] { return parse(context.engine, speaks, body, stop); };
  try {
    result = co_await context.lane_for(body.size()).run(work);
    if (!result.wrong)
      result.place = context.keys.take(scope.key(), count_sequences(result.request.prompts));
  } catch (const failure& full) {
    result.wrong = full.what_failed();
  }
  co_return result;
}

asio::awaitable<bool> produce(server_context& context, connection& link, request_scope& scope, request_set& requests,
                              dialect speaks, held_text body, answer_form form) {
  auto parsed = co_await parse_on_lane(context, speaks, body.text, scope);
  if (scope.why_cut())
    parsed.wrong = scope.why_cut();
  if (parsed.wrong) {
    form.keep_alive = form.keep_alive && !scope.why_cut();
    co_await link.send(reply::of(*parsed.wrong), form);
    co_return form.keep_alive;
  }
  { const auto no_longer_needed = std::move(body); }
  auto& request = parsed.request;
  response_writer writer(request, parsed.model);
  const bool stream = request.stream;
  if (stream && form.version < 11)
    form.keep_alive = false;
  auto open = request.prompts.size();
  for (const auto& one : request.prompts)
    link.record().understood(one);
  for (std::size_t i = 0; i < request.prompts.size(); ++i)
    requests.submit(i, std::move(request.prompts[i]), parsed.place);
  parsed.place = nullptr;

  bool started = false;
  while (open > 0) {
    co_await requests.wait();
    std::string out;
    auto failed = digest(requests.take(), writer, link.record(), stream, open, out);
    if (!failed && open > 0)
      failed = scope.why_cut();
    if (failed && !started) {
      form.keep_alive = form.keep_alive && !scope.why_cut();
      co_await link.send(reply::of(*failed), form);
      co_return form.keep_alive;
    }
    if (failed) {
      link.record().failed(code_of(*failed), failed->param);
      co_await link.stream(out + sse(error_body(*failed)) + sse("[DONE]"), form);
      co_await link.end_stream(form);
      co_return false;
    }
    if (!out.empty() && !std::exchange(started, true))
      co_await link.start_stream("text/event-stream", form);
    if (!out.empty())
      co_await link.stream(out, form);
    requests.settled();
  }
  if (!stream) {
    co_await link.send(reply::json(writer.body()), form);
    co_return form.keep_alive;
  }
  if (!started)
    co_await link.start_stream("text/event-stream", form);
  co_await link.stream(writer.last_chunks(), form);
  co_await link.end_stream(form);
  co_return form.keep_alive;
}

struct closing {
  request_set& requests;
  ~closing() { requests.close(); }
};

} // namespace

asio::awaitable<bool> exchange_generation(server_context& context, connection& link, request_scope& scope,
                                          dialect speaks, held_text body, answer_form form) {
  const auto requests = std::make_shared<request_set>(link.bytes().get_executor(), context.engine, context.counted,
                                                      context.options.sink_bytes);
  const closing at_end{*requests};
  scope.on_cut([&requests = *requests] { requests.poke(); });
  const bool reusable = co_await link.attend(
    scope, produce(context, link, scope, *requests, speaks, std::move(body), std::move(form)));
  scope.on_cut(nullptr);
  co_return reusable;
}

} // namespace troupe
