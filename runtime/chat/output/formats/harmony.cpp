// gpt-oss ("harmony"): everything lies in channels,
// <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>, and a call is
// <|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>.
#include "runtime/chat/output/chat_output_parser.hpp"
#include "runtime/chat/output/formats/formats.hpp"
#include "runtime/chat/output/text_search.hpp"

namespace troupe {

namespace {

constexpr std::string_view start_mark = "<|start|>", channel_mark = "<|channel|>", constrain_mark = "<|constrain|>",
                           message_mark = "<|message|>", end_mark = "<|end|>", call_mark = "<|call|>",
                           return_mark = "<|return|>";
constexpr std::string_view recipient = "to=functions.";

std::vector<std::string_view> channel_marks() {
  return {start_mark, channel_mark, constrain_mark, message_mark, end_mark, call_mark, return_mark};
}

class harmony_reader : public call_reader {
public:
  explicit harmony_reader(delta_sink& out) : out_(out), search_(channel_marks()) {}

  void take(char c) override {
    const auto marker = search_.take(c, [this](char other) { text(other); });
    if (!marker.empty())
      found(marker);
  }

  void finish() override {
    for (const char c : search_.release())
      text(c);
    release_header();
    out_.end_call();
  }

private:
  enum class in : std::uint8_t { header, content, reasoning, call };

  void text(char c) {
    const std::string_view one(&c, 1);
    switch (in_) {
      case in::header:
        header_ += c;
        if (first_ && c != ' ' && header_.size() == 1)
          release_header(); // an answer without channels
        else if (header_.size() > most_header_bytes)
          release_header();
        break;
      case in::content: out_.content(one); break;
      case in::reasoning: out_.reasoning(one); break;
      case in::call: out_.arguments(one); break;
    }
  }

  /// What has no message is content.
  void release_header() {
    if (in_ != in::header)
      return;
    in_ = in::content;
    out_.content(header_);
    header_.clear();
  }

  void found(std::string_view marker) {
    if (marker == message_mark && in_ == in::header)
      return open();
    if (in_ == in::header) {
      if (marker == end_mark || marker == call_mark || marker == return_mark)
        release_header();
      else
        header_ += marker;
      return;
    }
    if (marker == message_mark || marker == constrain_mark)
      return out_.content(marker); // not where it belongs
    out_.end_call();
    in_ = in::header;
    first_ = false;
    header_ = marker == start_mark || marker == channel_mark ? marker : std::string_view();
  }

  /// Begins a message, of the kind that its header tells.
  void open() {
    const std::string_view all = header_;
    const auto to = all.find(recipient);
    in_ = in::content;
    if (to != all.npos) {
      auto name = all.substr(to + recipient.size());
      name = name.substr(0, name.find_first_of(" <"));
      if (out_.begin_call(name))
        in_ = in::call;
      else
        out_.content(header_ + std::string(message_mark));
    } else if (all.find("analysis") != all.npos) {
      in_ = in::reasoning;
    }
    header_.clear();
  }

  static constexpr std::size_t most_header_bytes = 1024;

  delta_sink& out_;
  text_search search_;
  std::string header_; // of the message under way
  in in_ = in::header;
  bool first_ = true; // nothing was marked yet
};

class harmony : public call_format {
public:
  constexpr harmony() : call_format("harmony") {}
  bool is_used_by(std::string_view chat_template) const override {
    return chat_template.find(channel_mark) != chat_template.npos &&
      chat_template.find(message_mark) != chat_template.npos;
  }
  std::vector<std::string_view> markers() const override { return channel_marks(); }
  std::unique_ptr<call_reader> reader(delta_sink& out) const override { return std::make_unique<harmony_reader>(out); }
  const channel_texts* channels() const override {
    static const channel_texts texts{"<|channel|>analysis<|message|>", "<|end|><|start|>assistant",
                                     "<|channel|>final<|message|>"};
    return &texts;
  }
  call_layout layout() const override { return {.trigger = "<|channel|>commentary to=functions.", .one_only = true}; }
  call_tag tag(const offered_tool& tool) const override {
    return {"<|channel|>commentary to=functions." + tool.name + " <|constrain|>json<|message|>", json_arguments(tool),
            ""};
  }
};

constinit const harmony harmony_format;

} // namespace

const call_format& harmony_calls() { return harmony_format; }

} // namespace troupe
