// Formats that write arguments as texts between tags, not as JSON; the tool's schema tells strings from the rest:
// Qwen3-Coder  <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
// Seed-OSS     the same within <seed:tool_call>
// GLM 4.5      <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>
// MiniMax M2   <minimax:tool_call><invoke name="name"><parameter name="key">value</parameter></invoke> ...
//              </minimax:tool_call>: several calls within one pair of tags
#include "runtime/chat/output/call_search.hpp"
#include "runtime/chat/output/formats/formats.hpp"
#include "runtime/chat/output/formats/plain_value.hpp"
#include "runtime/chat/output/formats/tagged_parameters.hpp"

#include <initializer_list>
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

/// Finds the end of a value. Values may hold tags themselves, such as source text does: the tag that closes one ends it
/// only in front of a tag that may stand there. Some models leave it out at the end of a call.
class value_end {
public:
  explicit value_end(const value_tags& tags) : tags_(tags) {}

  /// True if the value ends: `rest()` is to be read behind it. Calls `pass` with the bytes of the value.
  template <class F>
  bool take(char c, F pass) {
    held_ += c;
    while (!held_.empty()) {
      const auto how = match(held_);
      if (how == fit::more)
        return false;
      if (how == fit::whole)
        return true;
      pass(held_.front());
      held_.erase(0, 1);
    }
    return false;
  }
  std::string rest() {
    auto result = std::exchange(held_, {});
    return result.starts_with(tags_.value_end) ? result.substr(tags_.value_end.size()) : result;
  }
  /// Whether the closing tag has been read.
  bool closed() const { return held_.starts_with(tags_.value_end); }
  /// What may be the beginning of the end.
  std::string release() { return std::exchange(held_, {}); }

private:
  enum class fit : std::uint8_t { none, more, whole };
  static constexpr std::size_t most_space = 256;

  static fit begins(std::string_view text, std::string_view with) {
    return text.starts_with(with) ? fit::whole : with.starts_with(text) ? fit::more : fit::none;
  }
  /// `first` and, behind white space, one of `then`.
  static fit in_row(std::string_view text, std::string_view first, std::initializer_list<std::string_view> then) {
    if (const auto how = begins(text, first); how != fit::whole)
      return how;
    text.remove_prefix(first.size());
    const auto spaces = text.size();
    while (!text.empty() && is_space(text.front()))
      text.remove_prefix(1);
    if (spaces - text.size() > most_space)
      return fit::none;
    auto result = fit::none;
    for (const auto each : then)
      if (!each.empty())
        if (const auto how = begins(text, each); how != fit::none)
          result = how == fit::whole || result == fit::none ? how : result;
    return result;
  }
  fit match(std::string_view text) const {
    const auto how = in_row(text, tags_.value_end, {tags_.key_begin, tags_.call_end, tags_.last_end});
    return how != fit::none || tags_.last_end.empty() ? how : in_row(text, tags_.call_end, {tags_.last_end});
  }

  const value_tags& tags_;
  std::string held_;
};

class tagged_attempt : public call_attempt {
public:
  /// `in_name`: the text that stands in front of a name has been read.
  tagged_attempt(delta_sink& out, const value_tags& tags, bool in_name) : out_(out), tags_(tags), end_(tags) {
    if (in_name || tags.name_begin.empty())
      expect(at::name, {});
    else
      expect(at::name_begin, {tags.name_begin});
  }

  reading take(char c) override {
    switch (at_) {
      case at::name: return name(c);
      case at::key: return key(c);
      case at::value: return value(c);
      default: break;
    }
    if (at_ == at::last && tags_.last_end.empty())
      return reading::failed;
    const auto how = expected_.take(c);
    if (how == expected_text::match::found)
      return found(expected_.found());
    if (how == expected_text::match::more)
      return reading::more;
    if (at_ == at::value_begin && !expected_.found().starts_with('<')) // it was left out
      return again(at::value, expected_.found());
    return broken();
  }
  void abandon() override {
    if (at_ != at::value || dropped_)
      return;
    if (end_.closed()) {
      value_.finish();
    } else {
      pass(end_.release());
      value_.cut();
    }
    emit();
  }

private:
  enum class at : std::uint8_t { name_begin, name, name_end, key_begin, key, value_begin, value, last };

  reading expect(at to, std::vector<std::string_view> texts) {
    at_ = to;
    expected_ = expected_text(std::move(texts));
    return reading::more;
  }
  /// Reads the text at another place.
  reading again(at to, std::string text) {
    at_ = to;
    auto how = reading::more;
    for (const char c : text)
      how = take(c);
    return how;
  }
  /// The next parameter, or the end of the call.
  reading next() {
    std::vector<std::string_view> texts{tags_.key_begin, tags_.call_end};
    if (!tags_.last_end.empty())
      texts.push_back(tags_.last_end);
    return expect(at::key_begin, std::move(texts));
  }
  /// What follows is no part of the call; what was read of it is JSON.
  reading broken() {
    if (at_ == at::key_begin || at_ == at::name_end || at_ == at::value_begin) {
      out_.arguments("}");
      out_.end_call();
    }
    return reading::failed;
  }

  reading name(char c) {
    const bool in_front = tags_.name_begin.empty(); // up to white space or a tag
    if (name_.empty() && is_space(c))
      return reading::more;
    const bool ends = in_front ? is_space(c) || c == '<' : c == tags_.name_end.front();
    if (!ends) {
      name_ += c;
      return name_.size() > most_name_bytes ? reading::failed : reading::more;
    }
    if (!out_.begin_call(without_space(name_)))
      return reading::failed;
    out_.arguments("{");
    name_.clear();
    first_ = true;
    if (!in_front && tags_.name_end.size() > 1)
      return expect(at::name_end, {tags_.name_end.substr(1)});
    next();
    return c == '<' ? take(c) : reading::more;
  }

  /// What cannot be a name is dropped with its value: a tag has been left out.
  reading key(char c) {
    std::string passed;
    const bool ends = !search_.take(c, [&](char other) { passed += other; }).empty();
    key_ += passed;
    const bool odd = passed.find('<') != passed.npos || key_.size() > most_name_bytes ||
      (ends && (without_space(key_).empty() || without_space(key_).find('\n') != key_.npos));
    if (odd) {
      begin_value(true);
      return again(at::value, ends ? std::string() : passed);
    }
    if (!ends)
      return reading::more;
    key_ = std::string(without_space(key_));
    begin_value(false);
    return tags_.value_begin.empty() ? reading::more
                                     : expect(at::value_begin, {tags_.value_begin, tags_.key_begin, tags_.call_end});
  }

  void begin_value(bool dropped) {
    at_ = at::value;
    dropped_ = dropped;
    value_ = plain_value(out_.called().kind_of(key_));
    end_.release();
    padded_ = false;
    at_start_ = true;
  }

  /// Text of the value, without one line feed at each end where the format has it.
  void pass(std::string_view text) {
    for (const char c : text) {
      const bool pads = !tags_.padding.empty() && c == tags_.padding.front();
      if (std::exchange(at_start_, false) && pads)
        continue;
      if (std::exchange(padded_, pads))
        value_.take(tags_.padding.front());
      if (!pads)
        value_.take(c);
    }
  }

  void emit() { out_.member(key_, first_, value_.release()); }

  reading value(char c) {
    const bool ends = end_.take(c, [this](char other) { pass({&other, 1}); });
    if (!ends) {
      if (!dropped_)
        emit();
      return reading::more;
    }
    if (!dropped_) {
      value_.finish();
      emit();
    }
    key_.clear();
    next();
    return again(at::key_begin, end_.rest());
  }

  reading found(const std::string& text) {
    if (at_ == at::name_end)
      return next();
    if (text == tags_.name_begin)
      return expect(at::name, {});
    if (text == tags_.key_begin) {
      at_ = at::key;
      search_ = text_search({tags_.key_end});
      key_.clear();
      return reading::more;
    }
    if (text == tags_.value_begin) {
      at_ = at::value;
      return reading::more;
    }
    if (at_ == at::last)
      return reading::done;
    out_.arguments("}");
    out_.end_call();
    if (tags_.last_end.empty() || text == tags_.last_end)
      return reading::done;
    if (tags_.several)
      expect(at::last, {tags_.name_begin, tags_.last_end});
    else
      expect(at::last, {tags_.last_end});
    return reading::settled;
  }

  delta_sink& out_;
  const value_tags& tags_;
  at at_ = at::name;
  expected_text expected_;
  text_search search_{{}};
  value_end end_;
  plain_value value_;
  std::string name_, key_; // key_: until its value begins
  bool first_ = true;
  bool dropped_ = false;  // the value is no parameter's
  bool at_start_ = false; // of a value
  bool padded_ = false;   // a line feed is held back
};

class tagged_values : public call_format {
public:
  constexpr tagged_values(std::string_view name, const value_tags& tags) : call_format(name), tags_(tags) {}

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
    std::vector markers{tags_.call_begin};
    if (!tags_.name_begin.empty()) // some models leave out what stands in front of it
      markers.push_back(tags_.name_begin);
    return std::make_unique<call_search>(out, std::move(markers), [this, &out](std::string_view marker) {
      return std::make_unique<tagged_attempt>(out, tags_, marker != tags_.call_begin);
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
  const value_tags& tags_;
};

constinit const tagged_values qwen3_coder_format("qwen3_coder", qwen_tags);
constinit const tagged_values seed_oss_format("seed_oss", seed_tags);
constinit const tagged_values minimax_format("minimax_m2", minimax_tags);
constinit const tagged_values glm45_format("glm45", glm_tags);

} // namespace

const call_format& qwen3_coder_calls() { return qwen3_coder_format; }
const call_format& seed_oss_calls() { return seed_oss_format; }
const call_format& minimax_calls() { return minimax_format; }
const call_format& glm45_calls() { return glm45_format; }

} // namespace troupe
