#include "api/http/line_sink.hpp"

#include "runtime/support/text/visible_text.hpp"

#include <cerrno>
#include <string_view>

#include <poll.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr std::string_view erase_line = "\r\033[K", no_colour = "\033[m";

std::string_view colour_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::info: return "\033[32m";
    case spdlog::level::warn: return "\033[33m\033[1m";
    case spdlog::level::err: return "\033[31m\033[1m";
    default: return "\033[36m";
  }
}

/// Drops the rest if it cannot be written.
void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(descriptor, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      pollfd writable{descriptor, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

} // namespace

line_sink::line_sink(int descriptor) : descriptor_(descriptor), terminal_(::isatty(descriptor)) {}

void line_sink::sink_it_(const spdlog::details::log_msg& message) {
  std::string text;
  if (bar_)
    text += erase_line;
  if (std::string_view(message.logger_name.data(), message.logger_name.size()) == plain) {
    const std::string_view given(message.payload.data(), message.payload.size());
    text += terminal_ && given.ends_with('\n') ? visible(given, true) : std::string(given); // else it is a bar
  } else {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const std::string_view all(line.data(), line.size());
    const auto begin = message.color_range_start, end = message.color_range_end;
    if (terminal_ && end > begin) {
      text += all.substr(0, begin);
      text += colour_of(message.level);
      text += all.substr(begin, end - begin);
      text += no_colour;
      text += all.substr(end);
    } else {
      text += all;
    }
  }
  bar_ = terminal_ && !text.empty() && text.back() != '\n' && !text.ends_with(erase_line);
  write_all(descriptor_, text);
}

} // namespace troupe
