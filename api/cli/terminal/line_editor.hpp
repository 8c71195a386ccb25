// Turns that a person types at a terminal: editing and history by libedit, a paste of several lines as one turn. Main
// thread only, and one at a time.
#pragma once

#include "api/cli/terminal/console.hpp"

#include <memory>
#include <string>
#include <vector>

namespace troupe::cli {

class line_editor {
public:
  /// `earlier`: the history, oldest first.
  line_editor(console& terminal, const std::vector<std::string>& earlier);
  ~line_editor();
  line_editor(const line_editor&) = delete;
  line_editor& operator=(const line_editor&) = delete;

  /// Waits for a turn, without its last line break. A backslash at the end of a line, or Alt-Enter, goes on with another
  /// line. Ctrl-C drops what has been typed, and interrupts where that is nothing.
  console::input read(std::string& text);

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe::cli
