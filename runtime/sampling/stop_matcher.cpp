#include "runtime/sampling/stop_matcher.hpp"

#include <utility>

namespace troupe {

stop_matcher::result stop_matcher::push(std::string_view piece, bool stopping) {
  if (last_.stopped)
    return last_;
  if (stops_.empty())
    return {.text = std::string(piece)};
  std::string text = std::exchange(held_, {});
  for (const char byte : piece) {
    text.push_back(byte);
    state_ = stops_.next(state_, static_cast<unsigned char>(byte));
    if (const auto match = stops_.match(state_); stopping && match != stop_strings::none) {
      text.resize(text.size() - stops_[match].size());
      last_ = {.text = {}, .stopped = true, .which = match};
      return {.text = std::move(text), .stopped = true, .which = match};
    }
  }
  if (!stopping)
    state_ = stops_.open(state_);
  const auto safe = text.size() - stops_.depth(state_);
  held_ = text.substr(safe);
  text.resize(safe);
  return {.text = std::move(text)};
}

std::string stop_matcher::finish() {
  state_ = 0;
  return std::exchange(held_, {});
}

} // namespace troupe
