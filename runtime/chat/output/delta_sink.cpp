#include "runtime/chat/output/delta_sink.hpp"

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/text_search.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_space = 4096; // bytes held back

} // namespace

delta_sink::delta_sink(const chat_output& what, std::string entropy) : what_(&what), entropy_(std::move(entropy)) {}

void delta_sink::append(output_delta::kind kind, std::string_view text) {
  if (text.empty())
    return;
  if (deltas_.empty() || deltas_.back().what != kind)
    deltas_.push_back({kind, {}, calls_ > 0 && kind == output_delta::kind::call_arguments ? calls_ - 1 : 0, {}});
  deltas_.back().text += text;
}

void delta_sink::content(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_space(text[i]) && behind_call_)
      continue;
    behind_call_ = false;
    space_ += text[i];
    if (is_space(text[i]) && space_.size() < most_space)
      continue;
    append(output_delta::kind::content, space_);
    space_.clear();
  }
}

void delta_sink::reasoning(std::string_view text) {
  if (what_->with_reasoning)
    append(output_delta::kind::reasoning, text);
}

bool delta_sink::begin_call(std::string_view name) {
  const auto* tool = what_->find(name);
  if (!tool || calls_ == chat_output::most_calls)
    return false;
  space_.clear();
  called_ = tool;
  in_call_ = behind_call_ = true;
  auto id = what_->format.calls->call_id(entropy_, name, calls_);
  deltas_.push_back({output_delta::kind::call_begin, tool->name, calls_++, std::move(id)});
  return true;
}

void delta_sink::arguments(std::string_view text) { append(output_delta::kind::call_arguments, text); }

void delta_sink::member(std::string& key, bool& first, std::string_view json) {
  if (json.empty())
    return;
  if (!key.empty())
    arguments((std::exchange(first, false) ? "" : ", ") + json_text(to_utf8(key)) + ": ");
  key.clear();
  arguments(json);
}

void delta_sink::finish() {
  if (calls_ == 0)
    append(output_delta::kind::content, space_);
  space_.clear();
  in_call_ = false;
}

output_deltas delta_sink::take() { return std::exchange(deltas_, {}); }

} // namespace troupe
