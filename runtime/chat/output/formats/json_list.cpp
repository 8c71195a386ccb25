// A marker and a list of calls: Mistral's [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], Granite's and Phi-4's
// <|tool_call|>[...], Nemotron's <TOOLCALL>[...]</TOOLCALL>.
#include "runtime/chat/output/call_object.hpp"
#include "runtime/chat/output/formats/formats.hpp"
#include "runtime/chat/output/formats/mistral.hpp"

namespace troupe {

namespace {

class marked_list : public call_attempt {
public:
  marked_list(delta_sink& out, std::string_view end) : list_(out), end_(std::vector{end}), has_end_(!end.empty()) {}

  reading take(char c) override {
    if (behind_)
      return reading_of(end_.take(c));
    const auto how = list_.take(c);
    if (how != reading::done || !has_end_)
      return how;
    behind_ = true;
    return reading::settled;
  }

private:
  call_list list_;
  expected_text end_;
  bool has_end_;
  bool behind_ = false; // the list
};

class json_list : public call_format {
public:
  constexpr json_list(std::string_view name, std::string_view begin, std::string_view end)
    : call_format(name), begin_(begin), end_(end) {}

  bool is_used_by(std::string_view chat_template) const override {
    return chat_template.find(begin_) != chat_template.npos &&
      (end_.empty() || chat_template.find(end_) != chat_template.npos);
  }
  std::vector<std::string_view> markers() const override {
    return end_.empty() ? std::vector{begin_} : std::vector{begin_, end_};
  }
  std::unique_ptr<call_reader> reader(delta_sink& out) const override {
    return std::make_unique<call_search>(out, std::vector{begin_}, [&out, end = end_](std::string_view) {
      return std::make_unique<marked_list>(out, end);
    });
  }
  call_layout layout() const override {
    return {std::string(begin_) + '[', ']' + std::string(end_), ", ", std::string(begin_)};
  }
  call_tag tag(const offered_tool& tool) const override {
    return {"{\"name\": \"" + tool.name + "\", \"arguments\": ", json_arguments(tool), "}"};
  }

private:
  std::string_view begin_, end_;
};

/// Mistral's older templates; its reader takes the newer form, too.
class mistral_list : public json_list {
public:
  constexpr mistral_list() : json_list("mistral", mistral_marker, {}) {}
  std::unique_ptr<call_reader> reader(delta_sink& out) const override { return mistral_reader(out); }
  std::string call_id(std::string_view entropy, std::string_view, std::size_t index) const override {
    return mistral_id(entropy, index);
  }
};

constinit const json_list nemotron_format("nemotron", "<TOOLCALL>", "</TOOLCALL>");
constinit const mistral_list mistral_format;
constinit const json_list granite_format("granite", "<|tool_call|>", {});
constinit const json_list phi4_format("phi4_mini", "<|tool_call|>", "<|/tool_call|>");

} // namespace

const call_format& nemotron_calls() { return nemotron_format; }
const call_format& mistral_calls() { return mistral_format; }
const call_format& granite_calls() { return granite_format; }
const call_format& phi4_calls() { return phi4_format; }

} // namespace troupe
