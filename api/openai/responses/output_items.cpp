#include "api/openai/responses/output_items.hpp"

#include "api/openai/object_id.hpp"
#include "api/openai/responses/response_input.hpp"
#include "api/openai/token_logprobs.hpp"
#include "runtime/support/json/json_object.hpp"

#include <utility>

namespace troupe {

std::string output_items::event(std::string_view type, const json_object& members) {
  const auto data = json_object().text("type", type).number("sequence_number", events_++).members_of(members).str();
  return "event: " + std::string(type) + "\ndata: " + data + "\n\n";
}

json_object output_items::about_item(bool part) const {
  json_object result;
  result.text("item_id", id_).number("output_index", items_.size());
  if (part)
    result.number("content_index", 0);
  return result;
}

std::string output_items::part_json(bool empty) const {
  json_object part;
  part.text("type", kind_ == kind::message ? "output_text" : "reasoning_text").text("text", empty ? "" : text_);
  if (kind_ == kind::message)
    part.raw("annotations", "[]").raw("logprobs", empty ? "[]" : chat_logprobs(logprobs_, *model_));
  return part.str();
}

std::string output_items::item_json(std::string_view status, bool empty) const {
  const auto content = empty ? "[]" : '[' + part_json(false) + ']';
  switch (kind_) {
    case kind::message:
      return json_object()
        .text("type", "message")
        .text("id", id_)
        .text("status", status)
        .text("role", "assistant")
        .raw("content", content)
        .str();
    case kind::reasoning: {
      json_object item;
      item.text("type", "reasoning")
        .text("id", id_)
        .text("status", status)
        .raw("summary", "[]")
        .raw("content", content);
      if (style_.seals_reasoning && !empty)
        item.text("encrypted_content", sealed_reasoning(text_));
      return item.str();
    }
    case kind::call: break;
  }
  json_object item;
  item.text("type", "function_call").text("id", id_).text("call_id", call_id_).text("name", called_name());
  if (const auto* within = style_.namespaces->find(name_))
    item.text("namespace", within->space);
  return item.text("arguments", empty ? "" : text_).text("status", status).str();
}

const std::string& output_items::called_name() const {
  const auto* within = style_.namespaces->find(name_);
  return within ? within->name : name_;
}

std::string output_items::open(kind what, const output_delta& delta) {
  open_ = true;
  kind_ = what;
  id_ = object_id(what == kind::message ? "msg_" : what == kind::reasoning ? "rs_" : "fc_");
  text_.clear();
  logprobs_.clear();
  if (what == kind::call) {
    call_id_ = delta.id;
    name_ = delta.text;
  }
  if (!style_.stream)
    return {};
  auto result = event("response.output_item.added",
                      json_object().number("output_index", items_.size()).raw("item", item_json("in_progress", true)));
  if (what != kind::call)
    result += event("response.content_part.added", about_item(true).raw("part", part_json(true)));
  return result;
}

std::string output_items::close(bool whole) {
  if (!std::exchange(open_, false))
    return {};
  auto json = item_json(whole ? "completed" : "incomplete", false);
  std::string result;
  if (style_.stream) {
    switch (kind_) {
      case kind::message:
        result = event("response.output_text.done",
                       about_item(true).text("text", text_).raw("logprobs", chat_logprobs(logprobs_, *model_)));
        break;
      case kind::reasoning: result = event("response.reasoning_text.done", about_item(true).text("text", text_)); break;
      case kind::call:
        result = event("response.function_call_arguments.done",
                       about_item(false).text("name", called_name()).text("arguments", text_));
        break;
    }
    if (kind_ != kind::call)
      result += event("response.content_part.done", about_item(true).raw("part", part_json(false)));
    result += event("response.output_item.done", json_object().number("output_index", items_.size()).raw("item", json));
  }
  items_.push_back({kind_, std::move(json), std::exchange(text_, {}), call_id_, name_});
  return result;
}

std::string output_items::add(const output_delta& delta, const std::vector<sampled_token>& logprobs) {
  using from = output_delta::kind;
  const auto what = delta.what == from::content ? kind::message
    : delta.what == from::reasoning             ? kind::reasoning
                                                : kind::call;
  std::string result;
  if (open_ && (kind_ != what || delta.what == from::call_begin))
    result += close(true);
  if (!open_)
    result += open(what, delta);
  if (delta.what == from::call_begin)
    return result;
  text_ += delta.text;
  if (what == kind::message)
    logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
  if (!style_.stream)
    return result;
  switch (what) {
    case kind::message:
      return result +
        event("response.output_text.delta",
              about_item(true).text("delta", delta.text).raw("logprobs", chat_logprobs(logprobs, *model_)));
    case kind::reasoning:
      return result + event("response.reasoning_text.delta", about_item(true).text("delta", delta.text));
    case kind::call: break;
  }
  return result + event("response.function_call_arguments.delta", about_item(false).text("delta", delta.text));
}

std::string output_items::end(bool whole) {
  std::string result;
  if (!open_ && items_.empty())
    result = open(kind::message, {});
  return result + close(whole);
}

std::string output_items::json() const {
  std::vector<std::string_view> all;
  for (const auto& one : items_)
    all.push_back(one.json);
  return json_list(all);
}

void output_items::add_to(conversation& chat) const {
  for (const auto& one : items_)
    switch (one.what) {
      case kind::message: chat.add_message("assistant", json_text(one.text)); break;
      case kind::reasoning: chat.add_reasoning(one.text); break;
      case kind::call: chat.add_call(one.call_id, one.name, one.text); break;
    }
}

} // namespace troupe
