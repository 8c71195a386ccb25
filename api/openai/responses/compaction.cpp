#include "api/openai/responses/compaction.hpp"

#include "api/openai/answer_text.hpp"
#include "api/openai/object_id.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/responses/response_answer.hpp"
#include "api/openai/responses/response_input.hpp"
#include "api/openai/responses/response_request.hpp"
#include "runtime/support/json/json_object.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

namespace troupe {

namespace {

constexpr int most_summary_tokens = 4096;

constexpr auto wish =
  "Summarise the conversation so far for an assistant that goes on with it and sees nothing but your summary and the "
  "user's messages: what was asked, what was done and found out, what was decided, and what is left to do. Answer with "
  "the summary alone.";

/// Members that shape an answer, which the summary is not.
constexpr auto dropped = std::to_array<std::string_view>(
  {"input", "stream", "store", "tools", "tool_choice", "text", "include", "max_output_tokens", "parallel_tool_calls"});

std::string user_item(std::string_view text) {
  return json_object().text("type", "message").text("role", "user").text("content", text).str();
}

/// The request for the summary: the conversation, and the wish for it.
std::string summary_request(const field_reader& body) {
  json_object to;
  for (auto [key, value] : json::object(body.body()))
    if (std::ranges::find(dropped, std::string_view(key)) == dropped.end() && !value.is_null())
      to.value(key, value);
  std::vector<std::string> items;
  if (const auto input = body.find("input")) {
    std::string_view text;
    json::array list;
    if (!input->get(text))
      items.push_back(user_item(text));
    else if (!input->get(list))
      for (auto item : list)
        items.push_back(json::minified(item));
    else
      body.refuse("input", "a string or a list of items", *input);
  } else if (!body.has("previous_response_id")) {
    body.refuse("input", "is required");
  }
  items.push_back(user_item(wish));
  return to.raw("input", json_list(items)).flag("store", false).str();
}

std::string text_of_content(json::value content) {
  std::string_view text;
  if (!content.get(text))
    return std::string(text);
  std::string all;
  json::array parts;
  if (!content.get(parts))
    for (auto part : parts)
      if (const auto found = json::find(part, "text"); found && !found->get(text))
        all += text;
  return all;
}

/// The users' messages but the last, which is the wish, as items.
std::vector<std::string> users_items(const std::string& messages) {
  const auto document = json::document::parse('[' + messages + ']', "the messages", errc::internal);
  std::vector<std::string> result;
  for (auto message : json::array(document.root())) {
    std::string_view role;
    if (json::find(message, "role")->get(role) || role != "user")
      continue;
    const auto text = text_of_content(*json::find(message, "content"));
    const auto part = json_object().text("type", "input_text").text("text", text).str();
    result.push_back(json_object()
                       .text("type", "message")
                       .text("id", object_id("msg_"))
                       .text("status", "completed")
                       .text("role", "user")
                       .raw("content", '[' + part + ']')
                       .str());
  }
  result.pop_back();
  return result;
}

class compaction_answer final : public answer_writer {
public:
  explicit compaction_answer(const response_request& request)
    : items_(users_items(request.messages)), text_(request.asked) {}

  void withhold(const output_filter& filter) override { text_.withhold(filter); }
  bool is_filtered(std::size_t) const override { return text_.filtered(); }

  std::string take(std::size_t, const token_event& e) override {
    if (text_.filtered())
      return {};
    add(text_.feed(e));
    used_.reasoning_tokens += text_.reasons() ? e.token_ids.size() : 0;
    return {};
  }
  std::string take(std::size_t, const done_event& e) override {
    add(text_.finish());
    used_.add(text_.as_told(e));
    return {};
  }
  std::string end() override { return {}; }
  std::string fail(const error&) override { return {}; }

  std::string body() override {
    items_.push_back(json_object()
                       .text("type", "compaction")
                       .text("id", object_id("cmp_"))
                       .text("encrypted_content", sealed_reasoning(summary_))
                       .str());
    return json_object()
      .text("id", object_id("resp_"))
      .text("object", "response.compaction")
      .number("created_at", std::time(nullptr))
      .list("output", items_)
      .raw("usage", response_usage(used_))
      .str();
  }

private:
  void add(const output_deltas& deltas) {
    for (const auto& delta : deltas)
      if (delta.what == output_delta::kind::content)
        summary_ += delta.text;
  }

  std::vector<std::string> items_;
  answer_text text_;
  std::string summary_;
  usage used_;
};

} // namespace

generation_job compaction_job(const field_reader& body, std::shared_ptr<const served_model> model,
                              const response_shelf& stored, const std::stop_token& stop) {
  const auto document = json::document::parse(summary_request(body), "the body", errc::bad_request);
  auto request = parse_response_request(field_reader(document.root()), *model, stored, stop);
  generation_job job;
  job.prompts = request.asked.prompts;
  auto& most = job.prompts.front().sampling.max_tokens;
  most = std::min(most, most_summary_tokens);
  job.writer = std::make_unique<compaction_answer>(request);
  job.notes = std::move(request.notes);
  return job;
}

} // namespace troupe
