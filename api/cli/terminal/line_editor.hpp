// Reads turns from a terminal: editing and history by libedit, with a paste of several lines as one turn. Main thread
// only; at most one exists at a time.
#pragma once

#include "api/cli/terminal/console.hpp"

#include <memory>
#include <string>
#include <vector>

namespace troupe::cli {

class line_editor {
public:
  /// `earlier` is the history, oldest first.
  line_editor(console& terminal, const std::vector<std::string>& earlier);
  ~line_editor();
  line_editor(const line_editor&) = delete;
  line_editor& operator=(const line_editor&) = delete;

  /// Waits for a turn and strips its last line break. A backslash at the end of a line, or Alt-Enter, continues on
  /// another line. Ctrl-C drops the typed text, or interrupts if there is none.
  console::input read(std::string& text);

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe::cli
