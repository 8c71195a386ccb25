#include "tests/api/server/drive_connection.hpp"

#include "api/server/http_session.hpp"
#include "api/server/server_context.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/text/utf8.hpp"
#include "tests/api/service/fake_service.hpp"

#include <boost/asio/strand.hpp>
#include <boost/beast/http.hpp>

#include <set>

namespace troupe::test {

namespace http = boost::beast::http;

namespace {

/// A request whose end is counted, by either side.
struct answered_request {
  std::unique_ptr<fake_request> asked;
  std::set<answered_request*>* open = nullptr;

  void end() { open->erase(this); }
};

class answered_control : public request_control {
public:
  explicit answered_control(std::shared_ptr<answered_request> request) : request_(std::move(request)) {}
  void cancel() override {
    if (!request_->open->contains(request_.get()))
      return;
    request_->end();
    request_->asked->done(finish_reason::cancelled);
  }
  void pause(bool) override {}

private:
  std::shared_ptr<answered_request> request_;
};

/// Runs only on the driver's thread.
class answering_service : public service {
public:
  std::shared_ptr<served_model> served = byte_model();
  std::set<answered_request*> open;
  bool held = false; // since the last reset

  service_status status() const override { return {true, "ready", 8, 8, ""}; }
  std::vector<std::shared_ptr<const served_model>> models() const override { return {served}; }
  engine_stats stats() const override { return {}; }

  request_handle submit(generation request, event_sink sink) override {
    const auto text = served->decode(request.prompt, true);
    const auto says = [&](const char* word) { return text.find(word) != text.npos; };
    auto made = std::make_shared<answered_request>();
    made->asked = std::make_unique<fake_request>(std::move(request), std::move(sink));
    made->open = &open;
    open.insert(made.get());
    auto& asked = *made->asked;
    if (says("fail")) {
      made->end();
      asked.send(error{errc::overloaded, "the queue is full", {}});
      return request_handle(std::make_shared<answered_control>(made));
    }
    if (asked.asked.sampling.prompt_logprobs >= 0)
      asked.score_prompt();
    if (asked.asked.sampling.scores_only()) {
      made->end();
      asked.done(finish_reason::length);
      return request_handle(std::make_shared<answered_control>(made));
    }
    for (int i = 0; i < asked.asked.sampling.n; ++i)
      asked.text("\xc3\xa9\"\n", static_cast<std::uint32_t>(i));
    if (says("late")) {
      made->end();
      asked.send(error{errc::device, "it broke", {}});
    } else if (says("hold")) {
      held = true;
    } else {
      for (int i = 0; i < asked.asked.sampling.n; ++i)
        asked.finish(finish_reason::length, static_cast<std::uint32_t>(i));
      made->end();
      asked.done(finish_reason::length);
    }
    return request_handle(std::make_shared<answered_control>(made));
  }
};

server_options small_limits() {
  server_options options;
  options.workers = 1;
  options.cors_origins = {"http://page.example"};
  options.max_header_bytes = 4 << 10;
  options.max_body_bytes = 64 << 10;
  options.max_frame_bytes = 16 << 10;
  options.max_requests_per_socket = 8;
  options.sink_bytes = 16 << 10;
  return options;
}

class driver {
public:
  driver() {
    context_.live.set(live_settings(context_.options, known_hosts(asio::ip::address_v4::loopback(), "localhost", {})));
  }

  driven_connection drive(std::string_view input) {
    const unsigned char how = input.empty() ? 0 : static_cast<unsigned char>(input.front());
    input.remove_prefix(std::min<std::size_t>(1, input.size()));
    memory_client::habits habits;
    constexpr std::size_t pieces[] = {std::numeric_limits<std::size_t>::max(), 1, 7, 64};
    habits.piece = pieces[how & 3];
    if (how & (leaves_after_100 | leaves_after_1000))
      habits.patience = how & leaves_after_100 ? 100 : 1000;
    engine_.held = false;
    const auto client = std::make_shared<memory_client>(asio::make_strand(context_.io), habits);
    start_http_session(context_, byte_stream(client));
    while (!input.empty()) {
      const auto part = input.substr(0, input.find(client_waits));
      client->send(part);
      settle();
      input.remove_prefix(std::min(input.size(), part.size() + client_waits.size()));
    }
    if (how & until_drained)
      each([](session& one) { one.drain(); });
    if (how & until_cut)
      each([](session& one) { one.cut(); });
    if (how & until_aborted)
      each([](session& one) { one.abort(); });
    else
      client->hang_up();
    settle();
    return {client->received(), fault(*client, habits.patience < 2000)};
  }

private:
  template <class F>
  void each(F f) {
    for (const auto& one : context_.sessions())
      f(*one);
    settle();
  }

  /// Runs until strand and workers are idle: each can make work for the other.
  void settle() {
    const auto busy = [this] {
      return !context_.brief.idle() || !context_.lengthy.idle() || !context_.arduous.idle() || !context_.reports.idle();
    };
    std::size_t ran = 1;
    while (ran > 0 || busy()) {
      context_.io.restart();
      ran = context_.io.poll();
      if (ran == 0 && busy())
        ran = context_.io.run_one_for(std::chrono::milliseconds(100));
    }
  }

  std::string fault(const memory_client& client, bool impatient) {
    if (context_.session_count() != 0)
      return "the connection is still there after its end";
    if (!engine_.open.empty())
      return "a request goes on after its connection";
    const auto metrics = context_.counted.text();
    if (metrics.find("\ntroupe_requests_in_flight 0\n") == metrics.npos)
      return "the count of requests in flight is not 0";
    return reply_fault(client.received(), impatient || engine_.held);
  }

  answering_service engine_;
  server_context context_{engine_, small_limits()};
};

bool is_json(std::string_view text) {
  try {
    json::document::parse(text, "a reply");
    return is_utf8(text);
  } catch (const failure&) {
    return false;
  }
}

std::string events_fault(std::string_view body) {
  while (!body.empty()) {
    if (body.starts_with("event: ")) // its name
      body.remove_prefix(std::min(body.find('\n'), body.size() - 1) + 1);
    const auto end = body.find("\n\n");
    if (end == body.npos || !body.starts_with("data: "))
      return "this is no event: " + std::string(body.substr(0, 200));
    const auto data = body.substr(6, end - 6);
    if (data != "[DONE]" && !is_json(data))
      return "an event is no JSON: " + std::string(data.substr(0, 200));
    body.remove_prefix(end + 2);
  }
  return {};
}

/// A server's frames are unmasked; this server sends whole messages.
std::string frames_fault(std::string_view bytes, bool torn) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  bool closed = false;
  while (!bytes.empty()) {
    if (closed)
      return "bytes follow the close frame";
    std::size_t head = 2, size = bytes.size() > 1 ? byte(1) : 0;
    if (size == 126 || size == 127)
      head = size == 126 ? 4 : 10;
    if (bytes.size() < head)
      return torn ? "" : "a frame is cut off";
    if (head > 2) {
      size = 0;
      for (std::size_t i = 2; i < head; ++i)
        size = size << 8 | byte(i);
    }
    if (bytes.size() - head < size)
      return torn ? "" : "a frame is cut off";
    const auto data = bytes.substr(head, size);
    const int opcode = byte(0) & 15;
    if ((byte(0) & 0xf0) != 0x80 || (opcode != 1 && opcode != 8 && opcode != 10))
      return "a frame of this kind is not sent: " + std::to_string(byte(0));
    if (opcode == 1 && !is_json(data))
      return "a frame is no JSON: " + std::string(data.substr(0, 200));
    closed = opcode == 8;
    bytes.remove_prefix(head + size);
  }
  return {};
}

/// Removes one response from `rest`.
std::string response_fault(std::string_view& rest, bool torn, bool& upgraded) {
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);
  boost::system::error_code ec;
  rest.remove_prefix(parser.put(asio::buffer(rest), ec));
  if (ec == http::error::need_more || (!ec && !parser.is_header_done())) {
    rest = {};
    return torn ? "" : "a response's head is cut off";
  }
  if (ec)
    return "this is no response: " + ec.message();
  upgraded = parser.get().result_int() == 101;
  // The answer to HEAD has the length of a body that does not follow.
  if (!parser.is_done() && parser.content_length() && (rest.empty() || rest.starts_with("HTTP/1.")))
    return {};
  parser.eager(true);
  while (!parser.is_done() && !rest.empty() && !ec)
    rest.remove_prefix(parser.put(asio::buffer(rest), ec));
  if (!parser.is_done() && !ec && parser.need_eof())
    parser.put_eof(ec);
  if (!parser.is_done()) {
    const bool cut = !ec || ec == http::error::need_more;
    rest = {};
    return cut && torn ? "" : "a response is malformed or cut off: " + ec.message();
  }
  const auto& whole = parser.get();
  const auto type = whole[http::field::content_type];
  if (type == "application/json" && !is_json(whole.body()))
    return "a body is no JSON: " + whole.body().substr(0, 200);
  return type == "text/event-stream" && !(torn && rest.empty()) ? events_fault(whole.body()) : "";
}

} // namespace

std::string reply_fault(std::string_view received, bool torn) {
  bool upgraded = false;
  while (!received.empty() && !upgraded)
    if (auto why = response_fault(received, torn, upgraded); !why.empty())
      return why;
  return frames_fault(received, torn);
}

driven_connection drive_connection(std::string_view input) {
  static driver all;
  return all.drive(input);
}

} // namespace troupe::test
