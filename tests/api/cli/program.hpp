// Runs a program as a user would: arguments, stdin, signals; stdout, stderr and the exit status.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe::test {

/// A folder of its own, gone with its owner.
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
  int status = -1; // of the exit, or 128 + the signal that ended it
  std::string out, err;
};

class program {
public:
  /// Starts it; `typed` is all of its stdin.
  program(const std::string& file, std::vector<std::string> arguments, const std::string& typed = {});
  ~program();

  /// Waits until it has printed `text` on stdout (or stderr). False where it ends before, or after a minute.
  bool prints(const std::string& text) const;

  std::string out() const;
  std::string err() const;
  void signal(int number) const;

  /// Waits for its end; after five minutes it is killed.
  outcome wait();

private:
  bool ended() const;

  temporary_folder files_;
  pid_t process_ = -1;
};

/// `troupe` with these arguments, to its end.
outcome run_troupe(std::vector<std::string> arguments, const std::string& typed = {});

/// The folder of a golden checkpoint.
std::string golden(const std::string& name);

} // namespace troupe::test
