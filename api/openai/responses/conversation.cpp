#include "api/openai/responses/conversation.hpp"

#include "runtime/support/json/json_object.hpp"

#include <utility>

namespace troupe {

namespace {

constexpr std::string_view call_begin = R"({"id":)", behind_call_id = R"(,"type":"function")";

}

void conversation::add_message(std::string_view role, std::string content) {
  if (role == "assistant") {
    if (!content_.empty() || !calls_.empty())
      end_turn();
    content_ = std::move(content);
    return;
  }
  end_turn();
  append(json_object().text("role", role).raw("content", content).str());
}

void conversation::add_reasoning(std::string_view text) {
  if (!content_.empty() || !calls_.empty())
    end_turn();
  reasoning_ += text;
}

void conversation::add_call(std::string_view id, std::string_view name, std::string_view arguments) {
  call_ids_.insert(json_text(id));
  calls_.push_back(json_object()
                     .text("id", id)
                     .text("type", "function")
                     .raw("function", json_object().text("name", name).text("arguments", arguments).str())
                     .str());
}

void conversation::add_call_output(std::string_view id, std::string_view content) {
  end_turn();
  append(json_object().text("role", "tool").text("tool_call_id", id).raw("content", content).str());
}

bool conversation::has_call(std::string_view id) {
  if (!std::exchange(earlier_known_, true))
    // end_turn() writes this beginning of a call. Within a text its quotes would be escaped.
    for (std::size_t at = 0; (at = text_.find(call_begin, at)) != text_.npos;) {
      at += call_begin.size();
      const auto end = text_.find(behind_call_id, at);
      if (end == text_.npos)
        break;
      call_ids_.insert(text_.substr(at, end - at));
    }
  return call_ids_.contains(json_text(id));
}

std::string conversation::messages() {
  end_turn();
  return text_;
}

void conversation::append(const std::string& message) {
  text_ += text_.empty() ? "" : ",";
  text_ += message;
}

void conversation::end_turn() {
  const auto content = std::exchange(content_, {}), reasoning = std::exchange(reasoning_, {});
  const auto calls = std::exchange(calls_, {});
  if (content.empty() && reasoning.empty() && calls.empty())
    return;
  json_object message;
  message.text("role", "assistant").raw("content", content.empty() ? "\"\"" : content);
  if (!reasoning.empty())
    message.text("reasoning_content", reasoning);
  if (!calls.empty())
    message.raw("tool_calls", json_list(calls));
  append(message.str());
}

} // namespace troupe
