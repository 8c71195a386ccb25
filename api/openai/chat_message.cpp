#include "api/openai/chat_message.hpp"

#include "runtime/support/json_text.hpp"

#include <random>
#include <utility>

namespace troupe {

namespace {

using kind = output_delta::kind;

std::string random_letters() {
  thread_local std::random_device device;
  constexpr std::string_view letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string result;
  for (int i = 0; i < 24; ++i)
    result += letters[device() % letters.size()];
  return result;
}

std::string call_object(const std::string& id, const std::string& name, const std::string& arguments) {
  return "\"id\":" + json_text(id) + ",\"type\":\"function\",\"function\":{\"name\":" + json_text(name) +
    ",\"arguments\":" + json_text(arguments) + '}';
}

} // namespace

void chat_message::add(const output_delta& delta) {
  switch (delta.what) {
    case kind::content: content_ += delta.text; break;
    case kind::reasoning: reasoning_ += delta.text; break;
    case kind::call_begin: calls_.push_back({delta.id, delta.text, {}}); break;
    case kind::call_arguments: calls_.at(delta.call).arguments += delta.text; break;
  }
}

std::string chat_message::json() const {
  std::string result = "{\"role\":\"assistant\"";
  if (!reasoning_.empty())
    result += ",\"reasoning_content\":" + json_text(reasoning_);
  result += ",\"content\":" + (content_.empty() && !calls_.empty() ? "null" : json_text(content_));
  result += ",\"refusal\":null";
  for (const auto& one : calls_)
    result += (&one == calls_.data() ? ",\"tool_calls\":[{" : ",{") + call_object(one.id, one.name, one.arguments) +
      '}';
  return result += calls_.empty() ? "}" : "]}";
}

std::string call_delta(const output_delta& delta) {
  const auto index = "{\"index\":" + std::to_string(delta.call) + ',';
  if (delta.what == kind::call_begin)
    return index + call_object(delta.id, delta.text, {}) + '}';
  return index + "\"function\":{\"arguments\":" + json_text(delta.text) + "}}";
}

std::string delta_members(const output_delta& delta) {
  switch (delta.what) {
    case kind::content: return "\"content\":" + json_text(delta.text);
    case kind::reasoning: return "\"reasoning_content\":" + json_text(delta.text);
    default: return "\"tool_calls\":[" + call_delta(delta) + ']';
  }
}

choice_parser::choice_parser(std::shared_ptr<const chat_output> what) : parser_(std::move(what), random_letters()) {}

output_deltas choice_parser::feed(std::string_view text, bool last) {
  if (ended_)
    return {};
  auto result = parser_.feed(text);
  if (!last)
    return result;
  ended_ = true;
  for (auto& delta : parser_.finish()) {
    if (!result.empty() && result.back().what == delta.what && delta.what != kind::call_begin)
      result.back().text += delta.text;
    else
      result.push_back(std::move(delta));
  }
  return result;
}

} // namespace troupe
