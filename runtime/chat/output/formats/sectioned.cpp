// Formats with a section of calls, in which each has a head, a separator and arguments between tags:
// DeepSeek V3.1  <calls><call>name<sep>{...}</call>...</calls>
// DeepSeek V3    <calls><call>function<sep>name, a line feed, ```json, {...}, ```</call>...</calls>
// Kimi K2        <calls><call>functions.name:0<sep>{...}</call>...</calls>
#include "runtime/chat/output/call_object.hpp"
#include "runtime/chat/output/formats/formats.hpp"
#include "runtime/chat/output/formats/tag_formats.hpp"

#include <utility>

namespace troupe {

namespace {

struct section_tags {
  std::string_view section_begin, call_begin, separator, call_end, section_end;
};

constexpr section_tags deepseek_tags{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                                     "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"};
constexpr section_tags kimi_tags{"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
                                 "<|tool_call_end|>", "<|tool_calls_section_end|>"};
constexpr std::string_view fence = "```", json_fence = "```json", function_head = "function";
constexpr std::string_view functions_prefix = "functions.";

/// The function's name in a head: "functions.name:0", or the name alone.
std::string_view name_in(std::string_view head) {
  while (!head.empty() && is_space(head.front()))
    head.remove_prefix(1);
  while (!head.empty() && is_space(head.back()))
    head.remove_suffix(1);
  if (head.starts_with(functions_prefix)) {
    head.remove_prefix(functions_prefix.size());
    head = head.substr(0, head.rfind(':'));
  }
  return head;
}

class section_attempt : public call_attempt {
public:
  section_attempt(delta_sink& out, const section_tags& tags)
    : out_(out),
      tags_(tags),
      expected_({tags.call_begin, tags.section_end}),
      head_end_({tags.separator}),
      arguments_(out) {}

  reading take(char c) override {
    switch (at_) {
      case at::between: return expect(c);
      case at::head: {
        const auto pass = [this](char other) { head_ += other; };
        if (head_end_.take(c, pass).empty())
          return head_.size() > most_name_bytes ? reading::failed : reading::more;
        at_ = head_ == function_head ? at::name : at::arguments;
        if (at_ == at::name)
          head_.clear();
        return reading::more;
      }
      case at::name:
        if (c != '\n') {
          head_ += c;
          return head_.size() > most_name_bytes ? reading::failed : reading::more;
        }
        return go_on(at::fence, {json_fence});
      case at::fence:
      case at::behind: return expect(c);
      case at::arguments: break;
    }
    const auto how = arguments_.take(c, name_in(head_));
    if (how != reading::done)
      return how;
    go_on(at::behind, {fence, tags_.call_end});
    return reading::settled;
  }

private:
  enum class at : std::uint8_t { between, head, name, fence, arguments, behind };

  reading go_on(at to, std::vector<std::string_view> expected) {
    at_ = to;
    expected_ = expected_text(std::move(expected));
    return reading::more;
  }

  reading expect(char c) {
    const auto how = expected_.take(c);
    if (how == expected_text::match::none)
      return reading::failed;
    if (how == expected_text::match::more)
      return reading::more;
    const auto found = expected_.found();
    if (found == tags_.section_end)
      return called_ ? reading::done : reading::failed; // an empty section is none
    if (found == fence)
      return go_on(at::behind, {tags_.call_end});
    if (found == tags_.call_end) {
      called_ = true;
      go_on(at::between, {tags_.call_begin, tags_.section_end});
      return reading::settled;
    }
    at_ = found == json_fence ? at::arguments : at::head;
    if (at_ == at::head) {
      head_.clear();
      arguments_ = call_arguments(out_);
    }
    return reading::more;
  }

  delta_sink& out_;
  const section_tags& tags_;
  at at_ = at::between;
  expected_text expected_;
  text_search head_end_;
  call_arguments arguments_;
  std::string head_;
  bool called_ = false;
};

enum class head_style : std::uint8_t { name, fenced, indexed };

class sectioned : public call_format {
public:
  constexpr sectioned(std::string_view name, const section_tags& tags, head_style style)
    : call_format(name), tags_(tags), style_(style) {}

  bool is_used_by(std::string_view chat_template) const override {
    return chat_template.find(tags_.section_begin) != chat_template.npos &&
      (style_ != head_style::fenced || chat_template.find(json_fence) != chat_template.npos);
  }
  std::vector<std::string_view> markers() const override {
    return {tags_.section_begin, tags_.call_begin, tags_.separator, tags_.call_end, tags_.section_end};
  }
  std::unique_ptr<call_reader> reader(delta_sink& out) const override {
    return std::make_unique<call_search>(out, std::vector{tags_.section_begin}, [this, &out](std::string_view) {
      return std::make_unique<section_attempt>(out, tags_);
    });
  }
  call_layout layout() const override {
    return {std::string(tags_.section_begin), std::string(tags_.section_end), style_ == head_style::fenced ? "\n" : "",
            std::string(tags_.section_begin)};
  }
  call_tag tag(const offered_tool& tool) const override {
    const std::string begin(tags_.call_begin), separator(tags_.separator), end(tags_.call_end);
    const auto arguments = json_arguments(tool);
    switch (style_) {
      case head_style::name: return {begin + tool.name + separator, arguments, end};
      case head_style::fenced:
        return {begin + std::string(function_head) + separator + tool.name + "\n```json\n", arguments, "\n```" + end};
      case head_style::indexed: break;
    }
    return {begin + std::string(functions_prefix) + tool.name + ':',
            tag_formats::combined(
              "sequence", {R"({"type":"regex","pattern":"[0-9]{1,3}"})", tag_formats::constant(separator), arguments}),
            end};
  }
  std::string call_id(std::string_view entropy, std::string_view name, std::size_t index) const override {
    return style_ != head_style::indexed
      ? call_format::call_id(entropy, name, index)
      : std::string(functions_prefix) + std::string(name) + ':' + std::to_string(index);
  }

private:
  const section_tags& tags_;
  head_style style_;
};

constinit const sectioned deepseek_v3_format("deepseek_v3", deepseek_tags, head_style::fenced);
constinit const sectioned deepseek_v31_format("deepseek_v31", deepseek_tags, head_style::name);
constinit const sectioned kimi_k2_format("kimi_k2", kimi_tags, head_style::indexed);

} // namespace

const call_format& deepseek_v3_calls() { return deepseek_v3_format; }
const call_format& deepseek_v31_calls() { return deepseek_v31_format; }
const call_format& kimi_k2_calls() { return kimi_k2_format; }

} // namespace troupe
