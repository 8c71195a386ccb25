#include "api/ollama/ollama_answer.hpp"

#include "api/openai/answer_text.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/token_logprobs.hpp"
#include "runtime/engine/context_length.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>
#include <utility>

namespace troupe {

namespace {

std::int64_t nanoseconds(double ms) { return std::llround(ms * 1e6); }

/// Text, reasoning and calls of one event, or of a whole answer.
struct piece_of_answer {
  std::string content, thinking;
  std::vector<std::string> calls; // as JSON
  std::vector<sampled_token> logprobs;

  bool empty() const { return content.empty() && thinking.empty() && calls.empty() && logprobs.empty(); }
};

class ollama_answer final : public answer_writer {
public:
  ollama_answer(const ollama_request& request, std::shared_ptr<const served_model> model)
    : model_(std::move(model)),
      call_(request.call),
      name_(request.model),
      stream_(request.stream),
      loads_(request.asked.prompts.empty()),
      unloads_(request.unloads),
      with_logprobs_(!loads_ && request.asked.prompts.front().sampling.logprobs >= 0),
      tells_context_(request.tells_context),
      text_(request.asked) {
    if (tells_context_)
      context_ = request.asked.prompts.front().prompt;
  }

  std::string_view stream_type() const override { return "application/x-ndjson"; }

  void withhold(const output_filter& filter) override {
    text_.withhold(filter);
    content_filter_ = filter;
  }
  bool is_filtered(std::size_t) const override { return filtered(); }

  std::string take(std::size_t, const token_event& e) override {
    if (filtered())
      return {};
    auto piece = piece_of(text_.feed(e));
    if (tells_context_ && !filtered())
      context_.insert(context_.end(), e.token_ids.begin(), e.token_ids.end());
    if (with_logprobs_ && !filtered())
      piece.logprobs = e.logprobs;
    return add(std::move(piece));
  }

  std::string take(std::size_t, const done_event& e) override {
    auto piece = piece_of(text_.finish());
    end_call(piece);
    auto result = add(std::move(piece));
    done_ = text_.as_told(e, filtered());
    return result;
  }

  std::string end() override { return line({}, done_); }
  std::string fail(const error& why) override { return ollama_error(why.message) + '\n'; }

  std::string body() override {
    if (loads_)
      return object_of({}).text("done_reason", unloads_ ? "unload" : "load").flag("done", true).str();
    return object(all_, done_);
  }

private:
  piece_of_answer piece_of(output_deltas deltas) {
    piece_of_answer result;
    for (auto& delta : deltas) {
      using kind = output_delta::kind;
      if (delta.what != kind::call_arguments)
        end_call(result);
      switch (delta.what) {
        case kind::content: say(result, std::move(delta.text)); break;
        case kind::reasoning: result.thinking += delta.text; break;
        case kind::call_begin: open_call_ = {true, std::move(delta.text), {}}; break;
        case kind::call_arguments: open_call_.arguments += delta.text; break;
      }
    }
    return result;
  }

  /// Adds content. Where that has arguments that are no call, too, it is another text than the parser's content.
  void say(piece_of_answer& to, std::string text) {
    output_deltas said{{output_delta::kind::content, std::move(text), 0, {}}};
    content_filter_.apply(said);
    for (const auto& one : said)
      to.content += one.text;
  }

  bool filtered() const { return text_.filtered() || content_filter_.closed(); }

  /// Calls are told whole. What an answer that was cut off left of its arguments is not a call.
  void end_call(piece_of_answer& to) {
    const auto call = std::exchange(open_call_, {});
    if (!call.open)
      return;
    if (filtered() && call.arguments.empty())
      return;
    const auto arguments = call.arguments.empty() ? std::string("{}") : call.arguments;
    try {
      json::document::parse(arguments, "arguments", errc::bad_request);
    } catch (const failure&) {
      if (!filtered())
        say(to, arguments);
      return;
    }
    to.calls.push_back(
      json_object().raw("function", json_object().text("name", call.name).raw("arguments", arguments).str()).str());
  }

  /// The line of a stream for a piece; a whole answer keeps it.
  std::string add(piece_of_answer piece) {
    if (stream_)
      return piece.empty() ? std::string() : line(piece, std::nullopt);
    all_.content += piece.content;
    all_.thinking += piece.thinking;
    all_.calls.insert(all_.calls.end(), piece.calls.begin(), piece.calls.end());
    all_.logprobs.insert(all_.logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
    return {};
  }

  json_object object_of(const piece_of_answer& piece) const {
    const bool chat = call_ == ollama_call::chat;
    json_object said, result;
    if (chat)
      said.text("role", "assistant");
    said.text(chat ? "content" : "response", piece.content);
    if (!piece.thinking.empty())
      said.text("thinking", piece.thinking);
    if (!piece.calls.empty())
      said.raw("tool_calls", json_list(piece.calls));
    result.text("model", to_utf8(name_)).text("created_at", ollama_time());
    if (chat)
      result.raw("message", said.str());
    else
      result.members_of(said);
    if (!piece.logprobs.empty())
      result.raw("logprobs", chat_logprobs(piece.logprobs, *model_));
    return result;
  }

  std::string object(const piece_of_answer& piece, const std::optional<done_event>& done) const {
    auto result = object_of(piece).flag("done", done.has_value());
    if (!done)
      return result.str();
    const auto why = done->choices.empty() ? finish_reason::stop : done->choices.front().reason;
    result.text("done_reason", filtered() ? std::string_view("content_filter") : name_of(why));
    if (tells_context_)
      result.raw("context", json_ids(context_));
    return result.number("total_duration", nanoseconds(done->queue_ms + done->prefill_ms + done->decode_ms))
      .number("load_duration", 0)
      .number("prompt_eval_count", done->prompt_tokens)
      .number("prompt_eval_duration", nanoseconds(done->prefill_ms))
      .number("eval_count", done->completion_tokens)
      .number("eval_duration", nanoseconds(done->decode_ms))
      .str();
  }

  std::string line(const piece_of_answer& piece, const std::optional<done_event>& done) const {
    return object(piece, done) + '\n';
  }

  struct open_call {
    bool open = false;
    std::string name, arguments;
  };

  std::shared_ptr<const served_model> model_;
  ollama_call call_;
  std::string name_;
  bool stream_, loads_, unloads_, with_logprobs_, tells_context_;
  answer_text text_;
  output_filter content_filter_;
  open_call open_call_;
  piece_of_answer all_; // if not a stream
  std::vector<token_id> context_;
  std::optional<done_event> done_;
};

} // namespace

generation_job ollama_job(ollama_call call, const field_reader& body, std::shared_ptr<const served_model> model,
                          const std::stop_token& stop) {
  auto request = parse_ollama(call, body, *model, stop);
  auto writer = std::make_unique<ollama_answer>(request, std::move(model));
  // An answer that is known already is an object, also for streams.
  const bool stream = request.stream && !request.asked.prompts.empty();
  return {std::move(request.asked.prompts), stream, std::move(writer), std::move(request.notes), request.keep_alive};
}

generation_job ollama_unload_job(ollama_call call, const field_reader& body) {
  ollama_request request;
  request.call = call;
  request.model = body.text("model").value_or(body.text("name").value_or(""));
  request.unloads = asks_to_unload(call, body);
  if (!request.unloads)
    return {};
  return {{}, false, std::make_unique<ollama_answer>(request, nullptr)};
}

std::string ollama_error(const std::string& sentence) {
  // Ollama's own sentence, by which its clients know this error.
  const auto more = is_beyond_context(sentence) ? " The input length exceeds the context length." : "";
  return json_object().text("error", to_utf8(sentence) + more).str();
}

std::string ollama_time() {
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::system_clock::to_time_t(now);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  const auto digits = std::to_string(micros);
  return to_date("%Y-%m-%dT%H:%M:%S", parts).value() + '.' + std::string(6 - digits.size(), '0') + digits + 'Z';
}

} // namespace troupe
