// While it lives, the terminal does not show what is typed, which would stand within an answer; the line editor shows it
// later. Main thread only; one at a time.
#pragma once

#include <atomic>

#include <termios.h>
#include <unistd.h>

namespace troupe::cli {

class quiet_typing {
public:
  /// `typed`: stdin is a terminal that a line editor reads.
  explicit quiet_typing(bool typed) {
    if (!typed || tcgetattr(STDIN_FILENO, &before_) != 0)
      return;
    auto quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    is_quiet_ = true;
    tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
  }
  ~quiet_typing() { end(); }
  quiet_typing(const quiet_typing&) = delete;
  quiet_typing& operator=(const quiet_typing&) = delete;

  /// What is typed is shown again, also where the program ends without destructors. Any thread, and in signal handlers.
  static void end() {
    if (is_quiet_.exchange(false))
      tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

private:
  static inline termios before_ = {};
  static inline std::atomic<bool> is_quiet_ = false;
  static_assert(std::atomic<bool>::is_always_lock_free);
};

} // namespace troupe::cli
