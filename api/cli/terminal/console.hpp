// The terminal's side of a running request: tokens that arrive from the engine's threads, lines that a person types,
// and Ctrl-C, waited for together on the program's main thread. At most one console exists at a time.
#pragma once

#include "runtime/engine/generation.hpp"
#include "runtime/support/error.hpp"

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

  /// Bytes of one turn, however it is typed.
  static constexpr std::size_t longest_line = std::size_t(16) << 20;
  static failure line_too_long();

  /// Waits for a line of stdin, without its line break. The last one need not have any. Throws failure(bad_request)
  /// where it is longer than `longest_line`.
  input read_line(std::string& line);

  /// Waits for stdin and appends what there is, some KiB at most. `other_signal`: one that is no interrupt came first.
  enum class piece { bytes, interrupted, end, other_signal };
  piece read_piece(std::string& to);

  /// Whether it was SIGTERM that interrupted last, rather than Ctrl-C.
  bool asked_to_end() const;

private:
  enum class wake { ready, interrupted, other_signal };
  /// Waits until `fd` can be read, unless a signal comes first.
  wake wait_for(int fd);

  int events_ready_;
  std::mutex guard_;
  std::deque<event> events_;
  std::string typed_;        // read, not yet returned
  std::size_t searched_ = 0; // bytes of it that have no line break
};

} // namespace troupe::cli
