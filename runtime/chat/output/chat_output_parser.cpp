#include "runtime/chat/output/chat_output_parser.hpp"

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "runtime/chat/output/text_search.hpp"

#include <optional>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_reasoning_space = 4096; // bytes held back

} // namespace

/// Finds calls that stand in reasoning which has no end: some models call from there. They count if nothing but calls
/// follows; others belong to the reasoning, as drafts of calls do.
class calls_in_reasoning {
public:
  calls_in_reasoning(const chat_output& what, std::string entropy) : what_(what), entropy_(std::move(entropy)) {
    restart();
  }

  /// Returns what is known to be reasoning.
  std::string take(char c) {
    held_ += c;
    reader_->take(c);
    std::size_t passed = 0;
    for (const auto& delta : sink_->take())
      if (delta.what == output_delta::kind::content)
        passed += delta.text.size();
      else if (delta.what == output_delta::kind::call_begin)
        calls_ = true;
    if (held_.size() > chat_output_parser::most_held || (calls_ && passed > 0)) {
      restart();
      return std::exchange(held_, {});
    }
    if (calls_)
      return {};
    auto result = held_.substr(0, passed);
    held_.erase(0, passed);
    return result;
  }
  /// What has been held back, calls or not.
  std::string release() { return std::exchange(held_, {}); }
  bool has_calls() const { return calls_ && !sink_->in_call(); }

private:
  void restart() {
    calls_ = false;
    sink_ = std::make_unique<delta_sink>(what_, entropy_);
    reader_ = what_.format.calls->reader(*sink_);
  }

  const chat_output& what_;
  std::string entropy_, held_;
  std::unique_ptr<delta_sink> sink_;
  std::unique_ptr<call_reader> reader_;
  bool calls_ = false;
};

/// Splits off the reasoning, which can only come first, with the white space around it; the rest goes to the reader.
struct chat_output_parser::state {
  enum class in : std::uint8_t { opening, reasoning, gap, answer };

  state(std::shared_ptr<const chat_output> asked, std::string entropy)
    : what(std::move(asked)), sink(*what, std::move(entropy)) {
    const auto& format = what->format;
    if (format.calls && (what->reads_calls() || format.calls->channels()))
      reader = format.calls->reader(sink);
    if (!format.reasoning)
      return;
    if (what->reads_calls() && !format.calls->channels() && !format.calls->layout().trigger.empty())
      within.emplace(*what, "abcdefghijklmnopqrstuvwx"); // these calls are told by `reader`, with its ids
    now = in::opening;
    begin = expected_text({format.reasoning->begin()});
    end = text_search({format.reasoning->end()});
  }

  void take(char c) {
    switch (now) {
      case in::opening: return open(c);
      case in::reasoning: {
        const auto pass = [this](char other) { ponder(other); };
        if (!end.take(c, pass).empty()) {
          if (within)
            think_all(within->release());
          space.clear();
          now = in::gap;
        }
        return;
      }
      case in::gap:
        if (is_space(c))
          return;
        now = in::answer;
        [[fallthrough]];
      case in::answer: answer(c);
    }
  }

  /// The answer's beginning: either reasoning's, or something else.
  void open(char c) {
    opening += c;
    const auto how = begin.take(c);
    if (how == expected_text::match::more && opening.size() < most_reasoning_space)
      return;
    const auto text = std::exchange(opening, {});
    now = how == expected_text::match::found || what->opens_reasoning ? in::reasoning : in::answer;
    if (how != expected_text::match::found)
      for (const char other : text)
        take(other);
  }

  void ponder(char c) {
    if (within)
      think_all(within->take(c));
    else
      think(c);
  }

  void think_all(const std::string& text) {
    for (const char c : text)
      think(c);
  }

  void think(char c) {
    if (is_space(c) && (!thinks || space.size() < most_reasoning_space)) {
      if (thinks)
        space += c;
      return;
    }
    thinks = true;
    sink.reasoning(space);
    sink.reasoning({&c, 1});
    space.clear();
  }

  void answer(char c) {
    if (reader)
      reader->take(c);
    else
      sink.content({&c, 1});
  }

  void finish() {
    for (const char c : std::exchange(opening, {}))
      if (what->opens_reasoning)
        ponder(c);
      else
        answer(c);
    if (now == in::reasoning)
      for (const char c : end.release())
        ponder(c);
    if (within && within->has_calls())
      for (const char c : within->release())
        answer(c);
    else if (within)
      think_all(within->release());
    if (reader)
      reader->finish();
    sink.finish();
  }

  std::shared_ptr<const chat_output> what;
  delta_sink sink;
  std::unique_ptr<call_reader> reader; // null: all is content
  std::optional<calls_in_reasoning> within;
  in now = in::answer;
  expected_text begin;
  text_search end{{}};
  std::string opening; // read while the beginning is not known
  std::string space;   // within the reasoning, held back
  bool thinks = false; // the reasoning has begun with something
};

chat_output_parser::chat_output_parser(std::shared_ptr<const chat_output> what, std::string entropy)
  : state_(std::make_unique<state>(std::move(what), std::move(entropy))) {}
chat_output_parser::chat_output_parser(chat_output_parser&&) noexcept = default;
chat_output_parser& chat_output_parser::operator=(chat_output_parser&&) noexcept = default;
chat_output_parser::~chat_output_parser() = default;

output_deltas chat_output_parser::feed(std::string_view text) {
  for (const char c : text)
    state_->take(c);
  return state_->sink.take();
}

output_deltas chat_output_parser::finish() {
  state_->finish();
  return state_->sink.take();
}

std::size_t chat_output_parser::calls() const { return state_->sink.calls(); }

bool chat_output_parser::reasons() const { return state_->now == state::in::reasoning; }

} // namespace troupe
