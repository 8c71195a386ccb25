#include "runtime/chat/output/find_chat_format.hpp"

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/formats/formats.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "runtime/support/error.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <algorithm>

namespace troupe {

namespace {

const call_format* calls_of(std::string_view chat_template) {
  const auto all = call_formats();
  const auto found = std::ranges::find_if(all, [&](const auto* f) { return f->is_used_by(chat_template); });
  if (found != all.end())
    return *found;
  // LFM 2.5's smaller models show tools without the marks that they write around calls.
  return chat_template.find("List of tools: ") == chat_template.npos ? &json_calls() : &lfm2_calls();
}

const reasoning_format* reasoning_of(std::string_view chat_template) {
  const auto all = reasoning_formats();
  const auto found = std::ranges::find_if(all, [&](const auto& f) { return f.is_used_by(chat_template); });
  return found == all.end() ? nullptr : &*found;
}

template <class Format>
const Format* known(const Format* found, const std::string& name, const char* flag) {
  if (!found)
    throw failure(errc::bad_request, std::string(flag) + " must name a parser, not `" + name + "`", flag);
  return found;
}

} // namespace

chat_format find_chat_format(std::string_view chat_template, const format_names& names) {
  chat_format result;
  if (names.calls == "auto")
    result.calls = calls_of(chat_template);
  else if (names.calls != "none")
    result.calls = known(find_call_format(names.calls), names.calls, "--tool-parser");
  const bool has_channels = result.calls && result.calls->channels();
  if (names.reasoning == "auto")
    result.reasoning = has_channels ? nullptr : reasoning_of(chat_template);
  else if (names.reasoning != "none")
    result.reasoning = known(find_reasoning_format(names.reasoning), names.reasoning, "--reasoning-parser");
  return result;
}

std::vector<token_id> special_markers(const chat_format& format, const tokenizer& tokens) {
  std::vector<std::string_view> texts;
  if (format.calls)
    texts = format.calls->markers();
  if (format.reasoning)
    texts.insert(texts.end(), {format.reasoning->begin(), format.reasoning->end()});
  std::vector<token_id> result;
  for (const auto text : texts)
    if (const auto id = tokens.id_of(text); id && tokens.is_special(*id))
      result.push_back(*id);
  std::ranges::sort(result);
  result.erase(std::ranges::unique(result).begin(), result.end());
  return result;
}

std::vector<std::string> call_format_names() {
  std::vector<std::string> result{"auto", "none"};
  for (const auto* format : call_formats())
    result.emplace_back(format->name());
  return result;
}

std::vector<std::string> reasoning_format_names() {
  std::vector<std::string> result{"auto", "none"};
  for (const auto& format : reasoning_formats())
    result.emplace_back(format.name());
  return result;
}

} // namespace troupe
