// Runs `troupe` at a pseudo-terminal: types into it and reads the screen.
#pragma once

#include "tests/api/cli/program.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace troupe::test {

class terminal {
public:
  /// Starts it with HOME and XDG_STATE_HOME in `home`. 80 columns, 24 rows.
  terminal(std::vector<std::string> arguments, const temporary_folder& home);
  ~terminal();
  terminal(const terminal&) = delete;
  terminal& operator=(const terminal&) = delete;

  void type(std::string_view keys);

  /// Pastes `text` in brackets, as terminals do in bracketed-paste mode.
  void paste(std::string_view text) { type("\033[200~" + std::string(text) + "\033[201~"); }

  /// Waits until `text` appears after the last match. False if the program ends first, or after five minutes.
  bool shows(std::string_view text);

  /// All output so far.
  const std::string& screen() const { return shown_; }

  void signal(int number) const;

  /// Whether it shows what is typed.
  bool echoes() const;

  /// Waits for the end: the exit status, or 128 + the signal that ended it. Kills the program after five minutes.
  int wait();

private:
  bool read_some();

  int master_ = -1;
  pid_t process_ = -1;
  std::string shown_;
  std::size_t seen_ = 0;
};

} // namespace troupe::test
