// Stdin and stdout of all commands. All output goes through C's `stdout`, whose buffer std::cout shares, so that one
// check at the end finds write errors. Main thread only.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace troupe::cli {

/// Stdout cannot be written. Ends a command; only run_command_line catches it.
class output_failure : public std::exception {
public:
  explicit output_failure(int error);

  const char* what() const noexcept override { return what_.c_str(); }
  /// The reader has gone, which is not worth a message.
  bool is_broken_pipe() const noexcept;

private:
  int error_; // errno
  std::string what_;
};

/// Keeps files opened later from becoming stdin, stdout or stderr if the program was started without them.
void occupy_standard_streams();

/// Flushes stdout. Throws output_failure.
void flush_output();

/// Prints `text` and flushes. Throws output_failure.
void print(std::string_view text);

/// Whether stdout is a terminal and what was printed there last did not end its line. Any thread.
bool is_within_a_line();

/// All of stdin. Throws failure(bad_file) if it exceeds the limit of a text file.
std::string read_stdin();

/// All of a text file, or of stdin if its name is `-`. Throws failure(bad_file).
std::string read_file_or_stdin(const std::string& name);

} // namespace troupe::cli
