#include "runtime/chat/output/chat_output_parser.hpp"

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "runtime/chat/output/text_search.hpp"

#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_reasoning_space = 4096; // bytes held back

} // namespace

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
    now = in::opening;
    begin = expected_text({format.reasoning->begin()});
    end = text_search({format.reasoning->end()});
  }

  void take(char c) {
    switch (now) {
      case in::opening: return open(c);
      case in::reasoning: {
        const auto pass = [this](char other) { think(other); };
        if (!end.take(c, pass).empty()) {
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
        think(c);
      else
        answer(c);
    if (now == in::reasoning)
      for (const char c : end.release())
        think(c);
    if (reader)
      reader->finish();
    sink.finish();
  }

  std::shared_ptr<const chat_output> what;
  delta_sink sink;
  std::unique_ptr<call_reader> reader; // null: all is content
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
