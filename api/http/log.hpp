// The server's log: one line per event with named fields, as text or JSON. Input from clients is escaped and cut, so it
// can neither end a line nor make it long. Thread-safe.
#pragma once

#include "runtime/support/log_line.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spdlog {
class logger;
}

namespace troupe {

enum class log_format : std::uint8_t { text, json };

struct log_field {
  std::string_view name;
  std::variant<std::string, std::uint64_t, double> value;
};
using log_fields = std::vector<log_field>;

/// Lets `burst` events pass at once and then `per_second`. Not thread-safe.
class rate_limit {
public:
  using clock = std::chrono::steady_clock;

  rate_limit(double per_second, double burst) : per_second_(per_second), burst_(burst), left_(burst) {}

  /// The number of events held back since the last one that passed, or nothing if this one is held back too.
  std::optional<std::uint64_t> pass(clock::time_point now);

private:
  double per_second_, burst_, left_;
  clock::time_point last_{};
  std::uint64_t held_back_ = 0;
};

/// `text` as a JSON string of printable characters, cut at `most` bytes of the original.
std::string log_text(std::string_view text, std::size_t most = 200);

class server_log {
public:
  static std::shared_ptr<server_log> on_stderr(log_level level, log_format format);
  /// The descriptor stays open for as long as the log.
  static std::shared_ptr<server_log> on_descriptor(int descriptor, log_level level, log_format format);
  /// `to` must outlive the log.
  static std::shared_ptr<server_log> on_stream(std::ostream& to, log_level level, log_format format);
  ~server_log();

  /// Of a log on a descriptor: from now on a separate thread writes the lines, and if they are not read, the oldest are
  /// dropped. Until then, whoever writes a line waits. Before other threads use the log.
  void start_thread();

  bool wants(log_level level) const;
  void set_level(log_level level);
  void write(log_level level, std::string_view what, const log_fields& fields = {});

  /// A sentence of this program's: in a text behind the level alone, as JSON the `message` of the event `what`.
  void say(log_level level, std::string_view what, std::string_view sentence);

  /// Writes a text for a person as it is, whatever the level, between the lines: it cannot fall into one. A text
  /// without an end of line is a progress bar, which the next text replaces. Nothing on a stream.
  void print(std::string_view text);

  /// Writes at `warn`, rate-limited so that a flood of refusals cannot fill a disk. The next line has the number of
  /// lines left out.
  void write_refusal(std::string_view what, log_fields fields);

private:
  server_log(std::shared_ptr<spdlog::logger> to, std::shared_ptr<spdlog::logger> plain, log_level level,
             log_format format);

  std::shared_ptr<spdlog::logger> to_, plain_;
  std::atomic<log_level> level_;
  log_format format_;
  std::mutex mutex_; // guards refusals_
  rate_limit refusals_;
};

} // namespace troupe
