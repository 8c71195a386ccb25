#include "api/cli/terminal/standard_streams.hpp"

#include "runtime/support/files/file_reading.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace troupe::cli {

namespace {
std::atomic<bool> line_is_open = false;
}

output_failure::output_failure(int error)
  : error_(error),
    what_("stdout cannot be written" + (error ? ": " + std::generic_category().message(error) : std::string())) {}

bool output_failure::is_broken_pipe() const noexcept { return error_ == EPIPE; }

void occupy_standard_streams() {
  // Opened for the wrong direction, so that using them still fails. `open` returns the lowest free number.
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    while (::fcntl(number, F_GETFD) < 0 && errno == EBADF)
      if (::open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
        return;
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0)
    throw output_failure(errno);
  if (std::ferror(stdout)) // an earlier flush of the full buffer failed
    throw output_failure(0);
}

void print(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw output_failure(errno);
  flush_output();
  if (!text.empty())
    line_is_open = !text.ends_with('\n');
}

bool is_within_a_line() { return line_is_open && isatty(STDOUT_FILENO); }

std::string read_stdin() { return read_all(STDIN_FILENO, "stdin", files::text); }

std::string read_file_or_stdin(const std::string& name) {
  return name == "-" ? read_stdin() : read_file(name, files::text);
}

} // namespace troupe::cli
