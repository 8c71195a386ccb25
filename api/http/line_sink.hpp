// Where a log's lines go: a file descriptor that a person may be watching. Each line is one write, so that neither the
// program's other output nor another process can fall into it. A progress bar, which is text without an end of line, is
// erased ahead of the next text. Thread-safe.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <mutex>
#include <string>

namespace troupe {

class line_sink final : public spdlog::sinks::base_sink<std::mutex> {
public:
  /// The logger by this name writes its texts without a time or an end of line: as they are, except what a terminal
  /// would act upon in those that have an end of line.
  static constexpr const char* plain = "plain";

  /// Does not own `descriptor`. Levels are coloured on a terminal.
  explicit line_sink(int descriptor);

private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

  const int descriptor_;
  const bool terminal_;
  bool bar_ = false; // what is on the screen has no end of line yet
};

} // namespace troupe
