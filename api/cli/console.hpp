// The terminal's side of a running request: tokens that arrive from the engine's threads, lines that a person types,
// and Ctrl-C, waited for together on the program's main thread. At most one console exists at a time.
#pragma once

#include "runtime/generation.hpp"

#include <deque>
#include <mutex>
#include <optional>
#include <string>

namespace troupe::cli {

class console {
public:
  console();
  ~console();
  console(const console&) = delete;
  console& operator=(const console&) = delete;

  /// From here on SIGINT and SIGTERM no longer end the program, but what waits below.
  void catch_interrupts();
  /// The other way round, as at the start.
  void let_interrupts_end_the_program();

  /// Any thread. Where there is no memory for it, the program ends: whoever waits for the event would wait for ever.
  void post(event e) noexcept;

  /// Waits for the next event; nothing where the user interrupts.
  std::optional<event> next_event();

  enum class input { line, interrupted, end };

  /// Waits for a line of stdin, without its line break. The last one need not have any.
  input read_line(std::string& line);

  /// Waits for an interrupt alone.
  void wait_for_interrupt();

private:
  /// Waits until `fd` can be read or the user interrupts, which it then returns (true).
  bool interrupted_before(int fd);

  int events_ready_;
  std::mutex guard_;
  std::deque<event> events_;
  std::string typed_; // read, not yet returned
};

} // namespace troupe::cli
