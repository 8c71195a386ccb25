// What is known of answers' lengths beyond the life of one scheduler: over its restarts, and in a file
// (engine_options::length_model) over those of the process. It is a hint and may be lost at any time. Shared by the
// engine and its schedulers; any thread.
#pragma once

#include "runtime/support/log_line.hpp"

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>

namespace troupe {

class length_model; // runtime/scheduling/lengths/length_model.hpp

class kept_lengths {
public:
  /// `file`: empty: none. One that is not there yet, or is empty, is made at the end. One of ours that is damaged, or of
  /// another version, is told to `log` and replaced then. Throws failure(bad_request | bad_file) for anything else that
  /// is there: it is somebody's own.
  explicit kept_lengths(std::filesystem::path file = {}, const log_sink& log = nullptr);

  /// length_model::saved() of the scheduler that had seen most answers at its end; empty: nothing is known.
  std::string learned() const;

  /// Keeps what a scheduler that ends has learned; without memory for it, what is kept already.
  void keep(const length_model& learned) noexcept;

  /// Writes the file, if there is one and anything was learned. A sentence if it cannot; empty: all is well.
  std::string write();

private:
  const std::filesystem::path file_;
  mutable std::mutex guard_;
  std::uint64_t seen_ = 0; // answers, by `learned_`
  bool changed_ = false;
  std::string learned_;
};

} // namespace troupe
