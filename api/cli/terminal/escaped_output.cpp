#include "api/cli/terminal/escaped_output.hpp"

#include "runtime/support/text/visible_text.hpp"

#include <cerrno>
#include <iostream>
#include <mutex>

#include <ext/stdio_sync_filebuf.h>
#include <poll.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

struct terminal_stream {
  std::FILE* itself = nullptr;
  int descriptor = -1;
  std::mutex guard; // of all below
  visible_text text;

  explicit terminal_stream(bool names) : text(names) {}

  /// Returns what a stdio cookie must: the number of bytes that were taken, or 0 after a failure.
  ssize_t write(std::string_view bytes) {
    const std::lock_guard lock(guard);
    std::string shown;
    text.push(bytes, shown);
    for (std::string_view rest = shown; !rest.empty();) {
      const auto written = ::write(descriptor, rest.data(), rest.size());
      if (written >= 0) {
        rest.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        pollfd writable{descriptor, POLLOUT, 0};
        ::poll(&writable, 1, -1);
      } else if (errno != EINTR) {
        return 0;
      }
    }
    return static_cast<ssize_t>(bytes.size());
  }
};

terminal_stream& output() {
  static auto& stream = *new terminal_stream(false); // outlives all that is printed at the end
  return stream;
}

terminal_stream& errors() {
  static auto& stream = *new terminal_stream(true); // its sentences name files and what clients sent
  return stream;
}

/// Replaces `stream` if it is a terminal.
void escape(std::FILE*& stream, int descriptor, terminal_stream& to, std::ostream& also, int buffering) {
  to.itself = stream;
  if (!::isatty(descriptor))
    return;
  to.descriptor = descriptor;
  const cookie_io_functions_t functions{nullptr,
                                        [](void* cookie, const char* bytes, std::size_t count) {
                                          return static_cast<terminal_stream*>(cookie)->write({bytes, count});
                                        },
                                        nullptr, nullptr};
  auto* escaped = ::fopencookie(&to, "w", functions);
  if (!escaped)
    return;
  std::setvbuf(escaped, nullptr, buffering, BUFSIZ);
  std::fflush(stream);
  stream = escaped;
  also.rdbuf(new __gnu_cxx::stdio_sync_filebuf<char>(escaped));
}

} // namespace

void escape_terminal_output() {
  escape(stdout, STDOUT_FILENO, output(), std::cout, _IOLBF);
  escape(stderr, STDERR_FILENO, errors(), std::cerr, _IONBF);
}

std::FILE* terminal_output() { return output().itself ? output().itself : stdout; }
std::FILE* terminal_errors() { return errors().itself ? errors().itself : stderr; }

} // namespace troupe::cli
