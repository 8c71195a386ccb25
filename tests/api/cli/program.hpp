// Runs a program as a user does: with arguments, stdin and signals; returns stdout, stderr and the exit status.
#pragma once

#include "tests/test_data.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe::test {

using strings = std::vector<std::string>;
using troupe::golden;

strings operator+(strings a, const strings& b);

/// Flags of an engine that is quick to start.
inline const strings small{"--max-context", "256", "--kv-cache", "4MiB", "--threads", "1"};

/// A temporary folder, removed with its owner.
class temporary_folder {
public:
  temporary_folder();
  ~temporary_folder();
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;

  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& text) const;

  const std::filesystem::path path;
};

struct outcome {
  /// The exit status, or 128 + the signal that ended it.
  int status = -1;
  std::string out, err;
};

class program {
public:
  /// Starts `file`; `typed` is all of its stdin.
  program(const std::string& file, strings arguments, const std::string& typed = {});
  ~program();

  /// Waits until stdout or stderr contains `text`. False if the program ends first, or after five minutes.
  bool prints(const std::string& text) const;

  std::string out() const;
  std::string err() const;
  void signal(int number) const;

  /// Waits for the program to end; kills it after five minutes.
  outcome wait();

private:
  bool ended() const;

  temporary_folder files_;
  pid_t process_ = -1;
};

/// Runs `troupe` with these arguments to its end.
outcome run_troupe(strings arguments, const std::string& typed = {});

/// `text` without its line break; checks that it is one line.
std::string only_line(const std::string& text);

} // namespace troupe::test
