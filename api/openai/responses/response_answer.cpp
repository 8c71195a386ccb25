#include "api/openai/responses/response_answer.hpp"

#include "api/openai/answer_text.hpp"
#include "api/openai/object_id.hpp"
#include "api/openai/responses/output_items.hpp"
#include "api/openai/responses/response_request.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"

#include <ctime>
#include <optional>
#include <utility>

namespace troupe {

namespace {

class response_answer final : public answer_writer {
public:
  response_answer(response_request request, const std::shared_ptr<const served_model>& model,
                  const response_shelf& stored)
    : stored_(stored),
      id_(object_id("resp_")),
      model_(name_in_answers(request.asked, *model)),
      created_(request_time()),
      stream_(request.asked.stream),
      store_(request.store),
      generates_(request.generates),
      with_logprobs_(request.asked.prompts.front().sampling.logprobs >= 0),
      repeated_(std::move(request.repeated)),
      input_(std::move(request.input)),
      messages_(std::move(request.messages)),
      text_(request.asked),
      items_(model, {stream_, request.seals_reasoning, std::move(request.namespaces)}) {}

  std::string_view id() const override { return id_; }
  void withhold(const output_filter& filter) override { text_.withhold(filter); }
  bool is_filtered(std::size_t) const override { return text_.filtered(); }

  std::string take(std::size_t, const token_event& e) override {
    if (text_.filtered())
      return {};
    const auto deltas = text_.feed(e);
    if (with_logprobs_ && !text_.filtered())
      pending_.insert(pending_.end(), e.logprobs.begin(), e.logprobs.end());
    used_.reasoning_tokens += text_.reasons() ? e.token_ids.size() : 0;
    return add(deltas);
  }

  std::string take(std::size_t, const done_event& e) override {
    auto result = begin();
    result += add(text_.finish());
    late_ = !e.choices.empty() && e.choices.front().reason == finish_reason::timeout;
    const bool cut = text_.filtered() || late_ ||
      (!e.choices.empty() && e.choices.front().reason == finish_reason::length);
    if (generates_)
      result += items_.end(!cut);
    used_.add(text_.as_told(e));
    body_ = object(cut ? "incomplete" : "completed");
    keep();
    if (!stream_)
      return {};
    return result +
      items_.event(cut ? "response.incomplete" : "response.completed", json_object().raw("response", body_));
  }

  // Open Responses asks for it; OpenAI's own clients do without.
  std::string end() override { return sse("[DONE]"); }

  std::string fail(const error& why) override {
    auto result = begin();
    result += add(text_.finish());
    result += items_.break_off();
    failed_ = why;
    return result + items_.event("response.failed", json_object().raw("response", object("failed"))) + end();
  }

  std::string body() override { return body_; }

private:
  /// The events that a stream begins with.
  std::string begin() {
    if (!stream_ || std::exchange(begun_, true))
      return {};
    const auto response = json_object().raw("response", object("in_progress"));
    auto result = items_.event("response.created", response);
    return result += items_.event("response.in_progress", response);
  }

  std::string add(const output_deltas& deltas) {
    std::string result;
    for (const auto& delta : deltas) {
      result += begin();
      const bool content = delta.what == output_delta::kind::content;
      result += items_.add(delta, content ? pending_ : std::vector<sampled_token>());
      pending_.clear(); // those of reasoning and calls are not told
    }
    return result;
  }

  void keep() {
    conversation chat(std::move(messages_));
    items_.add_to(chat);
    stored_.keep(id_, {body_, std::move(input_), chat.messages()}, store_);
  }

  std::string object(std::string_view status) const {
    json_object result;
    result.text("id", id_).text("object", "response").number("created_at", created_);
    if (status == "completed")
      result.number("completed_at", std::time(nullptr));
    else
      result.raw("completed_at", "null");
    result.text("status", status);
    if (failed_)
      result.raw("error", json_object().text("code", "server_error").text("message", to_utf8(failed_->message)).str());
    else
      result.raw("error", "null");
    const bool over = status == "completed" || status == "incomplete";
    result
      .raw("incomplete_details",
           status == "incomplete" ? json_object()
                                      .text("reason",
                                            text_.filtered() ? "content_filter"
                                              : late_        ? "timeout"
                                                             : "max_output_tokens")
                                      .str()
                                  : "null")
      .text("model", model_)
      .raw("output", items_.json())
      .raw("usage", over ? response_usage(used_) : "null");
    auto text = result.str();
    text.back() = ',';
    return text + repeated_ + '}';
  }

  response_shelf stored_;
  std::string id_, model_;
  std::time_t created_;
  bool stream_, store_, generates_, with_logprobs_;
  bool begun_ = false;
  std::string repeated_, input_, messages_;
  answer_text text_;
  output_items items_;
  std::vector<sampled_token> pending_; // log-probabilities of tokens whose text has not come yet
  usage used_;
  std::optional<error> failed_;
  bool late_ = false; // its time was over
  std::string body_;
};

} // namespace

std::string response_usage(const usage& used) {
  return json_object()
    .number("input_tokens", used.prompt_tokens)
    .raw("input_tokens_details",
         json_object()
           .number("cached_tokens", used.cached_tokens)
           .number("cache_write_tokens", used.prompt_tokens - used.cached_tokens)
           .str())
    .number("output_tokens", used.completion_tokens)
    .raw("output_tokens_details", json_object().number("reasoning_tokens", used.reasoning_tokens).str())
    .number("total_tokens", used.prompt_tokens + used.completion_tokens)
    .str();
}

generation_job response_job(const field_reader& body, std::shared_ptr<const served_model> model,
                            const response_shelf& stored, const std::stop_token& stop) {
  auto request = parse_response_request(body, *model, stored, stop);
  request.asked.stream = request.asked.stream || stored.connection;
  generation_job job;
  job.stream = request.asked.stream;
  job.prompts = request.asked.prompts; // their lists are shared, not copied
  job.notes = std::move(request.notes);
  job.notes.insert(job.notes.end(), request.asked.notes.begin(), request.asked.notes.end());
  job.writer = std::make_unique<response_answer>(std::move(request), model, stored);
  return job;
}

} // namespace troupe
