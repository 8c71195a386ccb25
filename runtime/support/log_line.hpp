// A line for the log: a sentence and its severity. Any layer makes them. Plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace troupe {

enum class log_level : std::uint8_t { debug, info, warn, error, off };

struct log_line {
  log_line(std::string what, log_level matters = log_level::info) : text(std::move(what)), level(matters) {}
  log_line(const char* what) : text(what) {}
  operator std::string() && { return std::move(text); }

  std::string text;
  log_level level = log_level::info;
};

/// Something that is not as it was asked for, or that a user should know.
inline log_line warning(std::string text) { return {std::move(text), log_level::warn}; }

/// Receives log lines of a load.
using log_sink = std::function<void(log_line)>;

} // namespace troupe
