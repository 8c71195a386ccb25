#include "api/openai/chat_message.hpp"

#include "api/openai/object_id.hpp"

#include <array>
#include <utility>

namespace troupe {

namespace {

using delta_kind = output_delta::kind;

std::string call_entropy() {
  constexpr std::string_view letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string result;
  for (int i = 0; i < 24; ++i)
    result += letters[random_byte() % letters.size()];
  return result;
}

/// Adds a call to an object that may have its index already.
json_object& add_call(json_object& to, const std::string& id, const std::string& name, const std::string& arguments) {
  return to.text("id", id)
    .text("type", "function")
    .object("function", json_object().text("name", name).text("arguments", arguments));
}

} // namespace

void chat_message::add(const output_delta& delta) {
  switch (delta.what) {
    case delta_kind::content: content_ += delta.text; break;
    case delta_kind::reasoning: reasoning_ += delta.text; break;
    case delta_kind::call_begin: calls_.push_back({delta.id, delta.text, {}}); break;
    case delta_kind::call_arguments: calls_.at(delta.call).arguments += delta.text; break;
  }
}

std::string chat_message::json() const {
  json_object result;
  result.text("role", "assistant");
  if (!reasoning_.empty())
    result.text("reasoning_content", reasoning_);
  if (content_.empty() && !calls_.empty())
    result.null("content");
  else
    result.text("content", content_);
  result.null("refusal");
  std::vector<std::string> calls;
  for (const auto& one : calls_) {
    json_object call;
    calls.push_back(add_call(call, one.id, one.name, one.arguments).str());
  }
  if (!calls.empty())
    result.list("tool_calls", calls);
  return result.str();
}

std::string call_delta(const output_delta& delta) {
  json_object result;
  result.number("index", delta.call);
  if (delta.what == delta_kind::call_begin)
    return add_call(result, delta.id, delta.text, {}).str();
  return result.object("function", json_object().text("arguments", delta.text)).str();
}

void add_delta(json_object& to, const output_delta& delta) {
  switch (delta.what) {
    case delta_kind::content: to.text("content", delta.text); break;
    case delta_kind::reasoning: to.text("reasoning_content", delta.text); break;
    default: to.list("tool_calls", std::array{call_delta(delta)});
  }
}

choice_parser::choice_parser(const std::shared_ptr<const chat_output>& what, output_filter filter)
  : filter_(std::move(filter)) {
  if (what)
    parser_.emplace(what, call_entropy());
}

output_deltas choice_parser::feed(std::string_view text, bool last) {
  if (ended_)
    return {};
  auto result = deltas_of(text, last);
  filter_.apply(result);
  ended_ = last || filter_.closed();
  return result;
}

output_deltas choice_parser::deltas_of(std::string_view text, bool last) {
  if (!parser_)
    return text.empty() ? output_deltas() : output_deltas{{delta_kind::content, std::string(text), 0, {}}};
  auto result = parser_->feed(text);
  if (!last)
    return result;
  for (auto& delta : parser_->finish()) {
    if (!result.empty() && result.back().what == delta.what && delta.what != delta_kind::call_begin)
      result.back().text += delta.text;
    else
      result.push_back(std::move(delta));
  }
  return result;
}

} // namespace troupe
