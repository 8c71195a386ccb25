// Formats that write arguments as texts between tags, not as JSON; the tool's schema tells strings from the rest:
// Qwen3-Coder  <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
// Seed-OSS     the same within <seed:tool_call>
// GLM 4.5      <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>
// MiniMax M2   <minimax:tool_call><invoke name="name"><parameter name="key">value</parameter></invoke> ...
//              </minimax:tool_call>: several calls within one pair of tags
#include "runtime/chat/output/call_search.hpp"
#include "runtime/chat/output/chat_output_parser.hpp"
#include "runtime/chat/output/formats/formats.hpp"
#include "runtime/chat/output/formats/tagged_parameters.hpp"
#include "runtime/chat/output/json_scanner.hpp"
#include "runtime/support/json_text.hpp"
#include "runtime/support/utf8.hpp"

#include <utility>

namespace troupe {

namespace {

constexpr value_tags qwen_tags{"<tool_call>", "<function=",   ">", "<parameter=", ">", "", "</parameter>",
                               "</function>", "</tool_call>", "\n"};
constexpr value_tags seed_tags{"<seed:tool_call>", "<function=",        ">", "<parameter=", ">", "", "</parameter>",
                               "</function>",      "</seed:tool_call>", ""};
constexpr value_tags glm_tags{"<tool_call>",  "", "\n", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
                              "</tool_call>", "", ""};
constexpr value_tags minimax_tags{"<minimax:tool_call>",
                                  "<invoke name=\"",
                                  "\">",
                                  "<parameter name=\"",
                                  "\">",
                                  "",
                                  "</parameter>",
                                  "</invoke>",
                                  "</minimax:tool_call>",
                                  "",
                                  true};

bool is_json(std::string_view text) {
  json_scanner scanner;
  for (std::size_t i = 0; i < text.size(); ++i)
    switch (scanner.take(text[i])) {
      case json_scanner::status::more: break;
      case json_scanner::status::done: return i + 1 == text.size();
      default: return false;
    }
  return scanner.can_end();
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

class tagged_attempt : public call_attempt {
public:
  tagged_attempt(delta_sink& out, const value_tags& tags) : out_(out), tags_(tags) {
    if (tags.name_begin.empty())
      expect(at::name, {});
    else
      expect(at::name_begin, {tags.name_begin});
  }

  reading take(char c) override {
    switch (at_) {
      case at::name: return name(c);
      case at::key:
      case at::value: return text(c);
      default: break;
    }
    if (at_ == at::last && tags_.last_end.empty())
      return reading::failed;
    const auto how = expected_.take(c);
    if (how == expected_text::match::none)
      return reading::failed;
    return how == expected_text::match::more ? reading::more : found(expected_.found());
  }
  bool can_end() const override { return at_ == at::last; }
  void abandon() override {
    if (at_ != at::value)
      return;
    auto cut = json_text(to_utf8(text_ + search_.release()));
    cut.pop_back(); // the quote
    out_.arguments(key_part() + cut);
  }

private:
  enum class at : std::uint8_t { name_begin, name, name_end, key_begin, key, value_begin, value, last };

  reading expect(at to, std::vector<std::string_view> texts) {
    at_ = to;
    expected_ = expected_text(std::move(texts));
    return reading::more;
  }
  reading read(at to, std::string_view end) {
    at_ = to;
    search_ = text_search({end});
    text_.clear();
    return reading::more;
  }
  /// The next parameter, or the end of the call.
  reading next() { return expect(at::key_begin, {tags_.key_begin, tags_.call_end}); }

  reading name(char c) {
    const bool in_front = tags_.name_begin.empty(); // up to white space or a tag
    if (in_front && name_.empty() && is_space(c))
      return reading::more;
    const bool ends = in_front ? is_space(c) || c == '<' : c == tags_.name_end.front();
    if (!ends) {
      name_ += c;
      return name_.size() > most_name_bytes ? reading::failed : reading::more;
    }
    if (!out_.begin_call(name_))
      return reading::failed;
    out_.arguments("{");
    name_.clear();
    first_ = true;
    if (!in_front && tags_.name_end.size() > 1)
      return expect(at::name_end, {tags_.name_end.substr(1)});
    next();
    return c == '<' ? take(c) : reading::more;
  }

  /// A key or a value.
  reading text(char c) {
    const auto end = search_.take(c, [this](char other) { text_ += other; });
    if (end.empty())
      return text_.size() > most_value_bytes ? reading::failed : reading::more;
    if (at_ == at::key) {
      key_ = std::string(trimmed(text_));
      return tags_.value_begin.empty() ? read(at::value, tags_.value_end)
                                       : expect(at::value_begin, {tags_.value_begin});
    }
    out_.arguments(key_part() + value());
    return next();
  }

  std::string key_part() { return (std::exchange(first_, false) ? "" : ", ") + json_text(to_utf8(key_)) + ": "; }

  std::string value() const {
    std::string_view text = text_;
    if (!tags_.padding.empty()) {
      if (text.starts_with(tags_.padding))
        text.remove_prefix(tags_.padding.size());
      if (text.ends_with(tags_.padding))
        text.remove_suffix(tags_.padding.size());
    }
    if (!out_.called().is_string(key_) && is_json(trimmed(text)))
      return std::string(trimmed(text));
    return json_text(to_utf8(text));
  }

  reading found(const std::string& text) {
    if (at_ == at::name_end)
      return next();
    if (text == tags_.name_begin)
      return expect(at::name, {});
    if (text == tags_.key_begin)
      return read(at::key, tags_.key_end);
    if (text == tags_.value_begin)
      return read(at::value, tags_.value_end);
    if (text == tags_.last_end && at_ == at::last)
      return reading::done;
    out_.arguments("}");
    out_.end_call();
    if (tags_.last_end.empty())
      return reading::done;
    if (tags_.several)
      expect(at::last, {tags_.name_begin, tags_.last_end});
    else
      expect(at::last, {tags_.last_end});
    return reading::settled;
  }

  static constexpr std::size_t most_value_bytes = chat_output_parser::most_held;

  delta_sink& out_;
  const value_tags& tags_;
  at at_ = at::name;
  expected_text expected_;
  text_search search_{{}};
  std::string name_, key_, text_;
  bool first_ = true;
};

class tagged_values : public call_format {
public:
  tagged_values(std::string_view name, const value_tags& tags) : name_(name), tags_(tags) {}

  std::string_view name() const override { return name_; }
  bool is_used_by(std::string_view chat_template) const override {
    return chat_template.find(tags_.call_begin) != chat_template.npos &&
      chat_template.find(tags_.key_begin) != chat_template.npos;
  }
  std::vector<std::string_view> markers() const override {
    std::vector<std::string_view> result{tags_.call_begin};
    for (const auto text : {tags_.last_end, tags_.call_end, tags_.key_begin, tags_.value_begin, tags_.value_end})
      if (!text.empty())
        result.push_back(text);
    if (tags_.key_end.size() > 2) // a tag of its own
      result.push_back(tags_.key_end);
    return result;
  }
  std::unique_ptr<call_reader> reader(delta_sink& out) const override {
    return std::make_unique<call_search>(out, std::vector{tags_.call_begin}, [this, &out](std::string_view) {
      return std::make_unique<tagged_attempt>(out, tags_);
    });
  }
  call_layout layout() const override {
    call_layout result{.separator = "\n", .trigger = std::string(tags_.call_begin)};
    if (tags_.several) {
      result.section_begin = std::string(tags_.call_begin) + '\n';
      result.section_end = '\n' + std::string(tags_.last_end);
    }
    return result;
  }

  call_tag tag(const offered_tool& tool) const override {
    call_tag result;
    if (!tags_.several)
      result.begin = std::string(tags_.call_begin) + (tags_.name_begin.empty() ? "" : "\n");
    result.begin += std::string(tags_.name_begin) + tool.name + std::string(tags_.name_end) +
      (tags_.name_end == "\n" ? "" : "\n");
    result.content = tagged_parameters(tool, tags_);
    result.end = std::string(tags_.call_end);
    if (!tags_.several && !tags_.last_end.empty())
      result.end += '\n' + std::string(tags_.last_end);
    return result;
  }

private:
  std::string_view name_;
  const value_tags& tags_;
};

} // namespace

const call_format& qwen3_coder_calls() {
  static const tagged_values format("qwen3_coder", qwen_tags);
  return format;
}

const call_format& seed_oss_calls() {
  static const tagged_values format("seed_oss", seed_tags);
  return format;
}

const call_format& minimax_calls() {
  static const tagged_values format("minimax_m2", minimax_tags);
  return format;
}

const call_format& glm45_calls() {
  static const tagged_values format("glm45", glm_tags);
  return format;
}

} // namespace troupe
