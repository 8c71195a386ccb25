// Waits on the main thread for the engine's events, typed lines and Ctrl-C together. At most one console exists at a
// time.
#pragma once

#include "runtime/engine/generation.hpp"
#include "runtime/support/error.hpp"

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::cli {

class console {
public:
  console();
  ~console();
  console(const console&) = delete;
  console& operator=(const console&) = delete;

  /// Makes SIGINT and SIGTERM interrupt the waits below instead of ending the program.
  void catch_interrupts();
  /// Calls `then` within the waits below at SIGHUP, unless the program was started to ignore it, as nohup does. Where it
  /// means that the program's terminal has gone, it is an interrupt like the others.
  void catch_hangups(std::function<void()> then);
  /// Restores the default: the signals end the program.
  void let_interrupts_end_the_program();

  /// Any thread. Ends the program if there is no memory, because the waiting thread would wait for ever.
  void post(event e) noexcept;

  /// Waits for the next event. Nothing if the user interrupts.
  std::optional<event> next_event();

  enum class input { line, interrupted, end };

  /// Limit of one turn, in bytes.
  static constexpr std::size_t longest_line = std::size_t(16) << 20;
  static failure line_too_long();

  /// Waits for a line of stdin and strips its line break, which the last line may lack. Throws failure(bad_request) if
  /// it exceeds `longest_line`.
  input read_line(std::string& line);

  /// Waits for stdin and appends the available bytes, at most some KiB. `other_signal`: a signal other than an
  /// interrupt arrived first.
  enum class piece { bytes, interrupted, end, other_signal };
  piece read_piece(std::string& to);

  /// Whether the last interrupt was SIGTERM rather than Ctrl-C.
  bool asked_to_end() const;
  /// "SIGTERM": the last signal that interrupted.
  std::string_view last_signal_name() const;

private:
  enum class wake { ready, interrupted, other_signal };
  /// What the signals that have arrived mean.
  wake take_signals();
  /// Waits until `fd` is readable or a signal arrives.
  wake wait_for(int fd);

  int events_ready_;
  std::function<void()> on_hangup_;
  bool has_terminal_ = false;
  std::mutex guard_;
  std::deque<event> events_;
  std::string typed_;        // read, not yet returned
  std::size_t searched_ = 0; // bytes of typed_ known to have no line break
};

} // namespace troupe::cli
