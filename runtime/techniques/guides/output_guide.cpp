#include "runtime/techniques/guides/guide_sources.hpp"

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/chat_output.hpp"
#include "runtime/chat/output/formats/tag_formats.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <string>
#include <utility>
#include <vector>

namespace troupe::guides {

namespace {

using namespace tag_formats;

guide_source structural(const std::string& format) {
  return {.what = guide_source::kind::structural_tag, .text = "{\"format\":" + format + '}'};
}

/// The formats of calls, and of answers with them.
class call_formats_of {
public:
  explicit call_formats_of(const chat_output& what)
    : what_(what),
      format_(*what.format.calls),
      layout_(format_.layout()),
      single_(what.choice == call_choice::named || !what.parallel || layout_.one_only) {
    for (const auto& tool : what.tools)
      add(tool);
  }

  /// One or more calls, and nothing else.
  std::string section() const {
    const auto inner = object_of("tags_with_separator",
                                 "\"tags\":" + listed(tags_) + ",\"separator\":" + json_text(layout_.separator) +
                                   ",\"at_least_one\":true,\"stop_after_first\":" + (single_ ? "true" : "false"));
    return has_section() ? tag_of(layout_.section_begin, inner, layout_.section_end) : inner;
  }

  /// Free text, in which calls follow their format once they begin.
  std::string free_or_calls() const {
    if (layout_.trigger.empty()) {
      std::vector<std::string> begins;
      for (const auto& begin : begins_)
        begins.push_back(json_text(begin));
      return combined("or", {section(), object_of("any_text", "\"unless_begins\":" + listed(begins))});
    }
    return object_of("triggered_tags",
                     "\"triggers\":[" + json_text(layout_.trigger) +
                       "],\"tags\":" + (has_section() ? listed({section()}) : listed(tags_)) +
                       ",\"stop_after_first\":" + (single_ || has_section() ? "true" : "false"));
  }

  const std::vector<std::string>& fields() const { return fields_; }

private:
  bool has_section() const { return !layout_.section_begin.empty(); }

  /// A schema that cannot be enforced makes way for any object, where that will do; whether it can be is found out when
  /// the guide is compiled.
  void add(const offered_tool& tool) {
    const auto any = format_.tag(offered_tool(tool.name, {}));
    const bool must = tool.strict || what_.choice != call_choice::automatic;
    const auto field = "tools[" + std::to_string(tool.position) + "].function.parameters";
    auto content = any.content;
    try {
      const auto own = format_.tag(tool).content;
      content = object_of("enforced",
                          "\"part\":" + std::to_string(fields_.size()) + ",\"content\":" + own +
                            (must ? "" : ",\"otherwise\":" + any.content));
      fields_.push_back(field);
    } catch (const failure& f) {
      if (must)
        refuse_field(field, "cannot be enforced: " + to_utf8(f.what()));
    }
    begins_.push_back(any.begin);
    tags_.push_back(tag_of(any.begin, content, any.end));
  }

  const chat_output& what_;
  const call_format& format_;
  const call_layout layout_;
  const bool single_;
  std::vector<std::string> begins_, tags_; // by tool
  std::vector<std::string> fields_;        // of the parts that are enforced
};

/// What content follows, as a format of structural tags.
std::string content_format(const guide_source& content) {
  using kind = guide_source::kind;
  if (content.what == kind::structural_tag || content.any_order || content.compact)
    refuse_field("tools",
                 "beside a structural tag, or beside JSON in any order or without white space, are not "
                 "supported unless `tool_choice` forces a call",
                 errc::unsupported);
  switch (content.what) {
    case kind::json_object: return R"({"type":"json_schema","json_schema":{"type":"object"}})";
    case kind::json_schema:
      return object_of("json_schema",
                       "\"json_schema\":" + content.text + ",\"closed\":" + (content.closed ? "true" : "false"));
    case kind::regex: return object_of("regex", "\"pattern\":" + json_text(content.text));
    case kind::grammar: return object_of("grammar", "\"grammar\":" + json_text(content.text));
    default: break;
  }
  std::vector<std::string> choices;
  for (const auto& choice : content.choices)
    choices.push_back(constant(choice));
  return combined("or", choices);
}

/// The marks of reasoning that is to be bounded. Behind channels' reasoning, what follows is the content, unless there
/// may be calls.
thinking_marks marks_of(const chat_output& what, bool has_calls) {
  if (const auto* reasoning = what.format.reasoning)
    return {std::string(reasoning->begin()), std::string(reasoning->end()), std::string(reasoning->end()),
            what.opens_reasoning};
  const auto* channels = what.format.calls ? what.format.calls->channels() : nullptr;
  if (!channels)
    return {};
  const std::string end(channels->reasoning_end);
  return {std::string(channels->reasoning_begin), end, has_calls ? end : end + std::string(channels->content_begin)};
}

/// Lets the guide begin behind the reasoning, if there is any.
void add_reasoning(guide_source& guide, const chat_output& what, bool has_calls, bool is_forced) {
  if (what.bounds_reasoning)
    guide.thinking = marks_of(what, has_calls);
  if (guide.what == guide_source::kind::anything)
    return;
  if (const auto* reasoning = what.format.reasoning) {
    if (what.opens_reasoning)
      guide.after = reasoning->end();
    else
      guide.preface_begin = reasoning->begin(), guide.preface_end = reasoning->end();
  } else if (const auto* channels = what.format.calls ? what.format.calls->channels() : nullptr) {
    if (!has_calls)
      guide.after = channels->content_begin;
    else if (is_forced)
      guide.preface_begin = channels->reasoning_begin, guide.preface_end = channels->reasoning_end;
  }
}

} // namespace

source_ptr output_guide(const chat_output& what, source_ptr content) {
  const bool has_calls = what.reads_calls();
  const bool is_forced = has_calls && what.choice != call_choice::automatic;
  if (!has_calls && !content && !what.bounds_reasoning)
    return nullptr;
  guide_source result;
  if (!has_calls && !content) {
    result.what = guide_source::kind::anything;
    result.field = "thinking_token_budget";
  } else if (!has_calls) {
    result = *content;
  } else {
    const call_formats_of calls(what);
    if (content && !is_forced && what.format.calls->channels())
      refuse_field("tools", "beside `response_format` are not supported by this model's format", errc::unsupported);
    if (is_forced)
      result = structural(what.opens_reasoning
                            ? R"({"type":"sequence","elements":[{"type":"regex","pattern":"\\s{0,4}"},)" +
                              calls.section() + "]}"
                            : calls.section());
    else
      result = structural(content ? combined("or", {content_format(*content), calls.section()})
                                  : calls.free_or_calls());
    result.parts = calls.fields();
  }
  if (content)
    result.field = content->field;
  if (has_calls)
    result.field = "tools";
  add_reasoning(result, what, has_calls, is_forced);
  return std::make_shared<const guide_source>(std::move(result));
}

} // namespace troupe::guides
