#include "api/anthropic/message_answer.hpp"

#include "api/anthropic/message_request.hpp"
#include "api/openai/answer_text.hpp"
#include "api/openai/object_id.hpp"
#include "api/openai/openai_response.hpp"
#include "runtime/engine/context_length.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

namespace {

std::string_view error_type_of(unsigned status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string message_event(std::string_view type, const json_object& members = {}) {
  return "event: " + std::string(type) + '\n' + sse(json_object().text("type", type).members_of(members).str());
}

struct content_block {
  enum class kind : std::uint8_t { thinking, text, tool_use };
  kind what = kind::text;
  std::string text; // of a call: its arguments; of a stream, none
  std::string id, name;
};

/// The input of a call. Nothing if the answer was cut off within it, because such a call must not be carried out.
std::optional<std::string> input_of(const content_block& call, bool cut) {
  if (call.text.empty())
    return "{}";
  try {
    const auto parsed = json::document::parse(call.text, "arguments", errc::bad_request);
    if (parsed.root().is_object())
      return json::minified(parsed.root());
  } catch (const failure&) { // of a model that nothing holds to its schema
  }
  return cut ? std::nullopt : std::optional(json_object().text("arguments", call.text).str());
}

class message_answer final : public answer_writer {
public:
  message_answer(message_request request, const served_model& model)
    : id_(object_id("msg_")),
      model_(name_in_answers(request.asked, model)),
      stream_(request.asked.stream),
      wants_more_(request.wants_more),
      stop_sequences_(std::move(request.stop_sequences)),
      text_(request.asked) {
    used_.prompt_tokens = request.asked.prompts.front().prompt.size();
  }

  std::string_view id() const override { return id_; }
  void withhold(const output_filter& filter) override { text_.withhold(filter); }
  bool is_filtered(std::size_t) const override { return text_.filtered(); }

  std::string take(std::size_t, const token_event& e) override {
    if (text_.filtered())
      return {};
    if (std::ranges::find(stop_sequences_, e.stop) != stop_sequences_.end())
      stopped_by_ = e.stop;
    auto result = begin();
    result += add(text_.feed(e));
    thinking_tokens_ += text_.reasons() ? e.token_ids.size() : 0;
    return result;
  }

  std::string take(std::size_t, const done_event& e) override {
    auto result = begin();
    result += add(text_.finish());
    result += end_block();
    filtered_ = text_.filtered();
    late_ = !e.choices.empty() && e.choices.front().reason == finish_reason::timeout;
    cut_ = filtered_ || late_ || (!e.choices.empty() && e.choices.front().reason == finish_reason::length);
    used_ = {};
    used_.add(text_.as_told(e));
    return result;
  }

  std::string end() override {
    return message_event(
             "message_delta",
             json_object().object("delta", json_object().members_of(stop_members())).object("usage", usage_members())) +
      message_event("message_stop");
  }

  std::string fail(const error& why) override {
    return "event: error\n" + sse(message_error(status_of(why.code), why.message, {}));
  }

  std::string body() override {
    std::vector<std::string> content;
    for (const auto& one : blocks_)
      if (const auto told = whole(one))
        content.push_back(*told);
    return object(json_list(content), stop_members());
  }

private:
  using kind = content_block::kind;

  std::string begin() {
    if (!stream_ || std::exchange(begun_, true))
      return {};
    return message_event(
             "message_start",
             json_object().raw("message", object("[]", json_object().null("stop_reason").null("stop_sequence")))) +
      message_event("ping");
  }

  std::string add(const output_deltas& deltas) {
    std::string result;
    for (const auto& delta : deltas) {
      switch (delta.what) {
        case output_delta::kind::content: result += open(kind::text); break;
        case output_delta::kind::reasoning: result += open(kind::thinking); break;
        case output_delta::kind::call_begin:
          result += end_block();
          result += begin_block({kind::tool_use, {}, delta.id, delta.text});
          continue;
        case output_delta::kind::call_arguments: break;
      }
      result += tell(delta.text);
    }
    return result;
  }

  std::string open(kind what) {
    if (open_ && blocks_.back().what == what)
      return {};
    auto result = end_block();
    return result += begin_block({what, {}, {}, {}});
  }

  std::string begin_block(content_block block) {
    open_ = true;
    blocks_.push_back(std::move(block));
    const auto& now = blocks_.back();
    calls_ += now.what == kind::tool_use;
    if (!stream_)
      return {};
    json_object start;
    switch (now.what) {
      case kind::text: start.text("type", "text").text("text", ""); break;
      case kind::thinking: start.text("type", "thinking").text("thinking", "").text("signature", ""); break;
      case kind::tool_use:
        start.text("type", "tool_use").text("id", now.id).text("name", now.name).raw("input", "{}");
        break;
    }
    return of_block("content_block_start", json_object().object("content_block", start));
  }

  std::string tell(const std::string& text) {
    if (text.empty())
      return {};
    if (!stream_) {
      blocks_.back().text += text;
      return {};
    }
    switch (blocks_.back().what) {
      case kind::text: return told(json_object().text("type", "text_delta").text("text", text));
      case kind::thinking: return told(json_object().text("type", "thinking_delta").text("thinking", text));
      case kind::tool_use: return told(json_object().text("type", "input_json_delta").text("partial_json", text));
    }
    return {};
  }

  std::string end_block() {
    if (!std::exchange(open_, false) || !stream_)
      return {};
    std::string result;
    if (blocks_.back().what == kind::thinking)
      result = told(json_object().text("type", "signature_delta").text("signature", object_id("unsigned_")));
    return result += of_block("content_block_stop", {});
  }

  std::string told(const json_object& delta) const {
    return of_block("content_block_delta", json_object().object("delta", delta));
  }

  std::string of_block(std::string_view type, const json_object& members) const {
    return message_event(type, json_object().number("index", blocks_.size() - 1).members_of(members));
  }

  /// Nothing for a call that was cut off.
  std::optional<std::string> whole(const content_block& block) const {
    switch (block.what) {
      case kind::text: return json_object().text("type", "text").text("text", block.text).str();
      case kind::thinking:
        // Clients drop blocks without a signature. Nobody checks it.
        return json_object()
          .text("type", "thinking")
          .text("thinking", block.text)
          .text("signature", object_id("unsigned_"))
          .str();
      case kind::tool_use: break;
    }
    const auto input = input_of(block, cut_);
    if (!input)
      return std::nullopt;
    return json_object()
      .text("type", "tool_use")
      .text("id", block.id)
      .text("name", block.name)
      .raw("input", *input)
      .str();
  }

  json_object stop_members() const {
    const auto* reason = filtered_ ? "refusal"
      : late_                      ? "timeout"
      : cut_ && wants_more_        ? "model_context_window_exceeded"
      : cut_                       ? "max_tokens"
      : calls_ > 0                 ? "tool_use"
      : stopped_by_                ? "stop_sequence"
                                   : "end_turn";
    json_object result;
    result.text("stop_reason", reason);
    if (stopped_by_ && !cut_)
      result.text("stop_sequence", to_utf8(*stopped_by_));
    else
      result.null("stop_sequence");
    return result;
  }

  /// `input_tokens` are those that were not cached, as Anthropic counts. Caching costs nothing, so none is told.
  json_object usage_members() const {
    json_object result;
    result.number("input_tokens", used_.prompt_tokens - used_.cached_tokens)
      .number("cache_creation_input_tokens", 0)
      .number("cache_read_input_tokens", used_.cached_tokens)
      .number("output_tokens", used_.completion_tokens);
    if (thinking_tokens_ > 0)
      result.object("output_tokens_details", json_object().number("thinking_tokens", thinking_tokens_));
    return result;
  }

  std::string object(std::string_view content, const json_object& stop) const {
    return json_object()
      .text("id", id_)
      .text("type", "message")
      .text("role", "assistant")
      .text("model", model_)
      .raw("content", content)
      .members_of(stop)
      .object("usage", usage_members().text("service_tier", "standard"))
      .str();
  }

  std::string id_, model_;
  bool stream_, wants_more_;
  std::vector<std::string> stop_sequences_;
  answer_text text_;
  std::vector<content_block> blocks_; // of a stream, without texts
  std::size_t calls_ = 0, thinking_tokens_ = 0;
  bool begun_ = false, open_ = false;
  bool cut_ = false, late_ = false;
  bool filtered_ = false; // it ended ahead of a banned text
  std::optional<std::string> stopped_by_;
  usage used_;
};

} // namespace

generation_job message_job(const field_reader& body, std::shared_ptr<const served_model> model,
                           const std::stop_token& stop) {
  auto request = parse_message_request(body, *model, stop);
  generation_job job;
  job.stream = request.asked.stream;
  job.prompts = request.asked.prompts; // their lists are shared, not copied
  job.notes = std::move(request.notes);
  job.writer = std::make_unique<message_answer>(std::move(request), *model);
  return job;
}

std::string message_error(unsigned status, const std::string& sentence, std::string_view request_id) {
  // Anthropic's own words, by which agents know that they have to compact a conversation.
  const auto own = is_beyond_context(sentence) ? "prompt is too long: " : "";
  return json_object()
    .text("type", "error")
    .object("error", json_object().text("type", error_type_of(status)).text("message", own + to_utf8(sentence)))
    .text_or_null("request_id", to_utf8(std::string(request_id)))
    .str();
}

} // namespace troupe
