#include "runtime/chat/output/call_search.hpp"

#include "runtime/chat/output/chat_output_parser.hpp"

#include <utility>

namespace troupe {

call_search::call_search(delta_sink& out, std::vector<std::string_view> markers, attempt_maker make, bool at_start)
  : out_(out), search_(std::move(markers)), make_(std::move(make)), at_start_(at_start) {}

void call_search::begin(std::string_view marker) {
  attempt_ = make_(marker);
  marker_ = marker;
  behind_marker_ = true;
  unsettled_.clear();
}

/// Ends the attempt. The marker is content; returns what is to be read again.
std::string call_search::fail() {
  if (out_.in_call())
    attempt_->abandon();
  attempt_.reset();
  out_.end_call();
  if (behind_marker_)
    out_.content(marker_);
  return std::exchange(unsettled_, {});
}

/// Returns what is to be read again.
std::string call_search::step(char c) {
  if (!attempt_ && std::exchange(at_start_, false))
    begin({});
  if (!attempt_) {
    const auto marker = search_.take(c, [this](char other) { out_.content({&other, 1}); });
    if (!marker.empty())
      begin(marker);
    return {};
  }
  const auto calls = out_.calls();
  const bool in_call = out_.in_call();
  const auto how = attempt_->take(c);
  const bool settled = how == reading::settled || how == reading::done || out_.calls() != calls;
  if (!in_call)
    unsettled_ += c;
  if (how == reading::failed || (!settled && unsettled_.size() > chat_output_parser::most_held)) {
    if (in_call)
      unsettled_ += c;
    return fail();
  }
  if (settled) {
    unsettled_.clear();
    behind_marker_ = false;
  }
  if (how == reading::done)
    attempt_.reset();
  return {};
}

void call_search::run(std::string text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto again = step(text[i++]);
    if (!again.empty()) {
      text.replace(0, i, again);
      i = 0;
    }
  }
}

void call_search::take(char c) { run(std::string(1, c)); }

void call_search::finish() {
  while (attempt_ && !out_.behind_call())
    run(fail());
  if (!attempt_ && !out_.behind_call())
    out_.content(search_.release());
  if (out_.in_call())
    attempt_->abandon();
  out_.end_call();
  attempt_.reset();
}

} // namespace troupe
