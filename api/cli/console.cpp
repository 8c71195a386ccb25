#include "api/cli/console.hpp"

#include "runtime/error.hpp"

#include <atomic>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

/// Signals have no other way to reach an object than a global.
std::atomic<int> signalled = -1;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int) {
  const int before = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(signalled, &one, sizeof one);
  errno = before;
}

int make_eventfd() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0)
    throw std::system_error(errno, std::generic_category(), "eventfd");
  return fd;
}

/// Resets the counter of an eventfd.
void drain(int fd) {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(fd, &count, sizeof count);
}

void handle_signals(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM})
    sigaction(signal, &action, nullptr);
}

} // namespace

console::console() : events_ready_(make_eventfd()) { signalled = make_eventfd(); }

console::~console() {
  let_interrupts_end_the_program();
  ::close(signalled.exchange(-1));
  ::close(events_ready_);
}

void console::catch_interrupts() { handle_signals(note_signal); }

void console::let_interrupts_end_the_program() { handle_signals(SIG_DFL); }

void console::post(event e) noexcept {
  {
    const std::lock_guard lock(guard_);
    events_.push_back(std::move(e));
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(events_ready_, &one, sizeof one);
}

std::optional<event> console::next_event() {
  for (;;) {
    {
      const std::lock_guard lock(guard_);
      if (!events_.empty()) {
        auto first = std::move(events_.front());
        events_.pop_front();
        return first;
      }
    }
    if (interrupted_before(events_ready_))
      return std::nullopt;
    drain(events_ready_);
  }
}

console::input console::read_line(std::string& line) {
  for (;;) {
    if (const auto end = typed_.find('\n'); end != std::string::npos) {
      line = typed_.substr(0, end);
      typed_.erase(0, end + 1);
      return input::line;
    }
    if (interrupted_before(STDIN_FILENO))
      return input::interrupted;
    std::array<char, 4096> piece;
    const auto got = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (got > 0) {
      typed_.append(piece.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      line = std::move(typed_);
      typed_.clear();
      return line.empty() ? input::end : input::line;
    }
  }
}

void console::wait_for_interrupt() { interrupted_before(-1); }

bool console::interrupted_before(int fd) {
  std::array<pollfd, 2> waiting{pollfd{signalled, POLLIN, 0}, pollfd{fd, POLLIN, 0}};
  while (::poll(waiting.data(), waiting.size(), -1) < 0)
    if (errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "poll");
  if (waiting[0].revents == 0)
    return false;
  drain(waiting[0].fd);
  return true;
}

} // namespace troupe::cli
