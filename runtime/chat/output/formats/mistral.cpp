#include "runtime/chat/output/formats/mistral.hpp"

#include "runtime/chat/output/call_object.hpp"
#include "runtime/chat/output/formats/formats.hpp"

#include <cstdint>

namespace troupe {

namespace {

constexpr std::string_view args_marker = "[ARGS]", id_marker = "[CALL_ID]";

class mistral_attempt : public call_attempt {
public:
  explicit mistral_attempt(delta_sink& out) : list_(out), arguments_(out), search_({args_marker}) {}

  reading take(char c) override {
    switch (at_) {
      case at::start:
        if (is_space(c))
          return reading::more;
        at_ = c == '[' ? at::list : at::name;
        return take(c);
      case at::list: return list_.take(c);
      case at::name:
        if (c == '[' || c == '{') {
          while (!name_.empty() && is_space(name_.back()))
            name_.pop_back();
          at_ = c == '[' ? at::marker : at::arguments;
          return take(c);
        }
        name_ += c;
        return name_.size() > most_name_bytes ? reading::failed : reading::more;
      case at::marker:
        if (marker_.take(c) == expected_text::match::found)
          at_ = marker_.found() == args_marker ? at::arguments : at::id;
        else if (!args_marker.starts_with(marker_.found()) && !id_marker.starts_with(marker_.found()))
          return reading::failed;
        return reading::more;
      case at::id:
        if (!search_.take(c, [](char) {}).empty())
          at_ = at::arguments;
        return reading::more;
      case at::arguments: break;
    }
    return arguments_.take(c, name_);
  }

private:
  enum class at : std::uint8_t { start, list, name, marker, id, arguments };

  at at_ = at::start;
  call_list list_;
  call_arguments arguments_;
  expected_text marker_{{args_marker, id_marker}};
  text_search search_;
  std::string name_;
};

class mistral_args : public call_format {
public:
  constexpr mistral_args() : call_format("mistral_args") {}
  bool is_used_by(std::string_view chat_template) const override {
    return chat_template.find(mistral_marker) != chat_template.npos &&
      chat_template.find(args_marker) != chat_template.npos;
  }
  std::vector<std::string_view> markers() const override { return {mistral_marker, args_marker, id_marker}; }
  std::unique_ptr<call_reader> reader(delta_sink& out) const override { return mistral_reader(out); }
  call_layout layout() const override { return {.trigger = std::string(mistral_marker)}; }
  call_tag tag(const offered_tool& tool) const override {
    return {std::string(mistral_marker) + tool.name + std::string(args_marker), json_arguments(tool), ""};
  }
  std::string call_id(std::string_view entropy, std::string_view, std::size_t index) const override {
    return mistral_id(entropy, index);
  }
};

constinit const mistral_args mistral_args_format;

} // namespace

std::unique_ptr<call_reader> mistral_reader(delta_sink& out) {
  return std::make_unique<call_search>(out, std::vector{mistral_marker},
                                       [&out](std::string_view) { return std::make_unique<mistral_attempt>(out); });
}

std::string mistral_id(std::string_view entropy, std::size_t index) {
  const auto digits = std::to_string(1000 + index).substr(1); // three, as there are at most `most_calls`
  return std::string(entropy.substr(0, 6)) + digits;
}

const call_format& mistral_args_calls() { return mistral_args_format; }

} // namespace troupe
