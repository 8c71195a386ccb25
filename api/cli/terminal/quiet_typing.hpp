// While it lives, the terminal does not show what is typed, which would stand within an answer; the line editor shows it
// later. Main thread only.
#pragma once

#include <termios.h>
#include <unistd.h>

namespace troupe::cli {

class quiet_typing {
public:
  /// `typed`: stdin is a terminal that a line editor reads.
  explicit quiet_typing(bool typed) : is_quiet_(typed && tcgetattr(STDIN_FILENO, &before_) == 0) {
    auto quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    if (is_quiet_)
      tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
  }
  ~quiet_typing() {
    if (is_quiet_)
      tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  quiet_typing(const quiet_typing&) = delete;
  quiet_typing& operator=(const quiet_typing&) = delete;

private:
  termios before_ = {};
  bool is_quiet_;
};

} // namespace troupe::cli
