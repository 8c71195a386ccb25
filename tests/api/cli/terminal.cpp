#include "tests/api/cli/terminal.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace troupe::test {

terminal::terminal(std::vector<std::string> arguments, const temporary_folder& home) {
  arguments.insert(arguments.begin(), TROUPE_PROGRAM);
  std::vector<char*> pointers;
  for (auto& a : arguments)
    pointers.push_back(a.data());
  pointers.push_back(nullptr);
  winsize size{24, 80, 0, 0};
  process_ = forkpty(&master_, nullptr, nullptr, &size);
  if (process_ < 0)
    throw std::system_error(errno, std::generic_category(), "forkpty");
  if (process_ == 0) {
    setenv("HOME", home.path.c_str(), 1);
    setenv("XDG_STATE_HOME", (home.path / "state").c_str(), 1);
    setenv("TERM", "xterm", 1);
    unsetenv("LC_ALL");
    unsetenv("LC_CTYPE");
    unsetenv("LANG");
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  fcntl(master_, F_SETFL, fcntl(master_, F_GETFL) | O_NONBLOCK);
}

terminal::~terminal() {
  if (process_ > 0) {
    signal(SIGKILL);
    wait();
  }
  close(master_);
}

void terminal::type(std::string_view keys) {
  while (!keys.empty()) {
    const auto written = ::write(master_, keys.data(), keys.size());
    if (written > 0) {
      keys.remove_prefix(static_cast<std::size_t>(written));
      continue;
    }
    pollfd ready{master_, POLLOUT | POLLIN, 0}; // the program may block until its output is read
    const auto came = poll(&ready, 1, 300'000);
    read_some();
    if (came == 0 || (ready.revents & POLLHUP))
      return;
  }
}

bool terminal::shows(std::string_view text) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  for (;;) {
    if (const auto at = shown_.find(text, seen_); at != std::string::npos) {
      seen_ = at + text.size();
      return true;
    }
    pollfd ready{master_, POLLIN, 0};
    if (std::chrono::steady_clock::now() > until)
      return false;
    if (poll(&ready, 1, 1000) > 0 && !read_some())
      return false;
  }
}

bool terminal::read_some() {
  std::array<char, 65536> piece;
  const auto got = ::read(master_, piece.data(), piece.size());
  if (got > 0)
    shown_.append(piece.data(), static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && errno == EAGAIN); // EIO once the other side is closed
}

void terminal::signal(int number) const { kill(process_, number); }

bool terminal::echoes() const {
  termios now = {};
  return tcgetattr(master_, &now) == 0 && (now.c_lflag & ECHO) != 0;
}

int terminal::wait() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (read_some()) {
    if (std::chrono::steady_clock::now() > until)
      signal(SIGKILL);
    pollfd ready{master_, POLLIN, 0};
    poll(&ready, 1, 1000);
  }
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR)
    ;
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace troupe::test
