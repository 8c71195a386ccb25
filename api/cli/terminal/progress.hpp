// Shows the progress of loading on stderr: a bar on a terminal, and a line for each stage if asked for. Erases no line
// but the bar's own, because an answer may be on the screen by the time that an engine has news. Any thread.
#pragma once

#include "api/embed/engine.hpp"
#include "api/embed/engine_internals.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::cli {

class progress {
public:
  /// `quiet`: shows nothing. `stages`: prints those of loading; what happens afterwards is always told.
  /// `to`: where texts go if not to stderr; a bar has no end of line.
  using writer = std::function<void(std::string_view)>;
  explicit progress(bool quiet = false, bool stages = true, writer to = {});

  void show(const load_status& status);

  /// Erases the bar, if there is one, and shows none from now on. Call it before printing: the engine reports
  /// that it is ready at about the time that others learn it, before or after.
  void end_bar();

private:
  void clear_bar();

  std::mutex guard_; // of all below
  bool bar_ended_ = false;
  bool quiet_;
  bool stages_;
  bool terminal_;
  int percent_ = -1; // that the bar on the screen shows; -1: there is none
  std::string line_;
  writer write_;
};

/// What a command does itself rather than an engine: loading a model, then reading or writing.
class task_progress {
public:
  /// `what`: "loading m".
  explicit task_progress(std::string what) { begin(std::move(what)); }
  task_progress(const task_progress&) = delete;
  task_progress& operator=(const task_progress&) = delete;

  /// The next thing is done from now on, which `show` tells.
  void begin(std::string what) { status_.line = std::move(what); }
  void end();

  const std::function<void(std::size_t done, std::size_t all)> show = [this](std::size_t done, std::size_t all) {
    status_.done_bytes = done;
    status_.total_bytes = all;
    shown_.show(status_);
  };
  /// A line of its own, at once.
  const std::function<void(std::string)> log = [this](std::string line) {
    begin(std::move(line));
    shown_.show(status_);
  };

private:
  progress shown_;
  load_status status_;
};

/// Starts an engine, shows its progress and waits until it is ready. Throws failure if loading fails.
engine start_engine(const engine_options& options, bool quiet, bool stages = true,
                    const engine_internals& internals = {});

} // namespace troupe::cli
