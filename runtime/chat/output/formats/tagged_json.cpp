// Hermes and Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, once for each call.
#include "runtime/chat/output/call_object.hpp"
#include "runtime/chat/output/formats/formats.hpp"

namespace troupe {

namespace {

constexpr std::string_view begin_tag = "<tool_call>", end_tag = "</tool_call>";

class tagged_object : public call_attempt {
public:
  explicit tagged_object(delta_sink& out) : object_(out), end_({end_tag}) {}

  reading take(char c) override {
    if (behind_)
      return reading_of(end_.take(c));
    const auto how = object_.take(c);
    behind_ = how == reading::done;
    return behind_ ? reading::settled : how;
  }

private:
  call_object object_;
  expected_text end_;
  bool behind_ = false; // the object
};

class tagged_json : public call_format {
public:
  constexpr tagged_json() : call_format("hermes") {}
  bool is_used_by(std::string_view chat_template) const override {
    return chat_template.find(begin_tag) != chat_template.npos;
  }
  std::vector<std::string_view> markers() const override { return {begin_tag, end_tag}; }
  std::unique_ptr<call_reader> reader(delta_sink& out) const override {
    return std::make_unique<call_search>(out, std::vector{begin_tag},
                                         [&out](std::string_view) { return std::make_unique<tagged_object>(out); });
  }
  call_layout layout() const override { return {.separator = "\n", .trigger = std::string(begin_tag)}; }
  call_tag tag(const offered_tool& tool) const override {
    return {std::string(begin_tag) + "\n{\"name\": \"" + tool.name + "\", \"arguments\": ", json_arguments(tool),
            "}\n" + std::string(end_tag)};
  }
};

constinit const tagged_json hermes_format;

} // namespace

const call_format& hermes_calls() { return hermes_format; }

} // namespace troupe
