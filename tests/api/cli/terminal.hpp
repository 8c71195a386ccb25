// `troupe` at a terminal of its own, as a person has it: what is typed, what is shown.
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

  /// As terminals hand over what is pasted, where they are asked to tell.
  void paste(std::string_view text) { type("\033[200~" + std::string(text) + "\033[201~"); }

  /// Waits until it has shown `text` since the last time this was true. False where it ends before, or after a minute.
  bool shows(std::string_view text);

  /// All that it has shown.
  const std::string& screen() const { return shown_; }

  void signal(int number) const;

  /// Waits for its end: the exit status, or 128 + the signal that ended it. It is killed after a minute.
  int wait();

private:
  bool read_some();

  int master_ = -1;
  pid_t process_ = -1;
  std::string shown_;
  std::size_t seen_ = 0;
};

} // namespace troupe::test
