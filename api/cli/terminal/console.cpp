#include "api/cli/terminal/console.hpp"

#include "api/cli/terminal/quiet_typing.hpp"
#include "runtime/support/files/descriptor.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

/// Global, because signal handlers cannot reach an object.
std::atomic<int> signalled = -1;
static_assert(std::atomic<int>::is_always_lock_free);

std::atomic<int> last_signal = 0; // that interrupted
std::atomic<bool> hung_up = false;

/// Signals received and not yet handled.
std::atomic<int> unseen = 0;

void wake_up() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(signalled, &one, sizeof one);
}

extern "C" void note_hangup(int) {
  const int before = errno;
  hung_up = true;
  wake_up();
  errno = before;
}

extern "C" void note_signal(int number) {
  const int before = errno;
  last_signal = number;
  if (unseen.fetch_add(1) >= 2) { // the program is stuck, perhaps writing to a pipe that is not read
    quiet_typing::end();
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  wake_up();
  errno = before;
}

/// Whether the program has a terminal that is still there.
bool is_on_terminal() { return static_cast<bool>(descriptor(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC))); }

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

void handle_signal(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART; // restarts writes; poll still returns
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

bool is_ignored(int number) {
  struct sigaction current = {};
  return sigaction(number, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
}

} // namespace

console::console() : events_ready_(make_eventfd()) { signalled = make_eventfd(); }

console::~console() {
  let_interrupts_end_the_program();
  ::close(signalled.exchange(-1));
  ::close(events_ready_);
}

void console::catch_interrupts() {
  for (const int number : {SIGINT, SIGTERM})
    handle_signal(number, note_signal);
}

void console::catch_hangups(std::function<void()> then) {
  on_hangup_ = std::move(then);
  has_terminal_ = has_terminal_ || is_on_terminal();
  if (!is_ignored(SIGHUP))
    handle_signal(SIGHUP, note_hangup);
}

void console::let_interrupts_end_the_program() {
  for (const int number : {SIGINT, SIGTERM})
    handle_signal(number, SIG_DFL);
  if (!is_ignored(SIGHUP))
    handle_signal(SIGHUP, SIG_DFL);
}

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
    const auto woken = wait_for(events_ready_);
    if (woken == wake::interrupted)
      return std::nullopt;
    if (woken == wake::ready)
      drain(events_ready_);
  }
}

console::input console::read_line(std::string& line) {
  for (;;) {
    if (const auto end = typed_.find('\n', searched_); end != std::string::npos) {
      line = typed_.substr(0, end);
      typed_.erase(0, end + 1);
      searched_ = 0;
      return input::line;
    }
    searched_ = typed_.size();
    if (typed_.size() > longest_line)
      throw line_too_long();
    const auto got = read_piece(typed_);
    if (got == piece::interrupted)
      return input::interrupted;
    if (got == piece::end) {
      line = std::exchange(typed_, {});
      searched_ = 0;
      return line.empty() ? input::end : input::line;
    }
  }
}

console::piece console::read_piece(std::string& to) {
  const auto woken = wait_for(STDIN_FILENO);
  if (woken != wake::ready)
    return woken == wake::interrupted ? piece::interrupted : piece::other_signal;
  std::array<char, 16384> bytes;
  const auto got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN))
    return piece::other_signal;
  if (got <= 0)
    return piece::end;
  to.append(bytes.data(), static_cast<std::size_t>(got));
  return piece::bytes;
}

failure console::line_too_long() {
  return {errc::bad_request,
          "a line of stdin has more than the " + std::to_string(longest_line >> 20) + " MiB that a turn may have"};
}

bool console::asked_to_end() const { return last_signal == SIGTERM; }

std::string_view console::last_signal_name() const {
  switch (last_signal) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    default: return "none";
  }
}

console::wake console::wait_for(int fd) {
  std::array<pollfd, 2> waiting{pollfd{signalled, POLLIN, 0}, pollfd{fd, POLLIN, 0}};
  if (::poll(waiting.data(), waiting.size(), -1) < 0) {
    if (errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "poll");
    return wake::other_signal; // an interrupt is seen by the next call
  }
  if (waiting[0].revents == 0)
    return wake::ready;
  drain(waiting[0].fd);
  return take_signals();
}

console::wake console::take_signals() {
  const bool hangup = hung_up.exchange(false);
  if (unseen.exchange(0) > 0)
    return wake::interrupted;
  if (hangup && has_terminal_ && !is_on_terminal()) {
    last_signal = SIGHUP;
    return wake::interrupted;
  }
  if (hangup && on_hangup_)
    on_hangup_();
  return wake::other_signal;
}

} // namespace troupe::cli
