// Stdin and stdout of all commands. What is printed by whatever means goes through C's `stdout`, which std::cout shares
// its buffer with, so that one look at the end tells whether it has arrived. Main thread only.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace troupe::cli {

/// Stdout does not take what is printed. Ends a command; nothing but run_command_line catches it.
class output_failure : public std::exception {
public:
  explicit output_failure(int error);

  const char* what() const noexcept override { return what_.c_str(); }
  /// Whoever was to read it has gone, which needs no words.
  bool is_broken_pipe() const noexcept;

private:
  int error_; // errno
  std::string what_;
};

/// Keeps files that are opened later from becoming stdin, stdout or stderr where the program was started without.
void occupy_standard_streams();

/// Hands over all that was printed so far. Throws output_failure.
void flush_output();

/// Prints `text` and hands it over. Throws output_failure.
void print(std::string_view text);

/// All of stdin. Throws failure(bad_file) where that is longer than a text may be.
std::string read_stdin();

} // namespace troupe::cli
