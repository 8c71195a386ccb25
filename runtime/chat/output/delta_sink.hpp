// Collects what the readers of one answer find: merges pieces, names and counts calls, and drops the white space that
// borders on calls, which formats put between them. Single-threaded; belongs to one parser.
#pragma once

#include "runtime/chat/output/chat_output.hpp"
#include "runtime/chat/output/output_delta.hpp"

#include <string>
#include <string_view>

namespace troupe {

class delta_sink {
public:
  /// `what` must outlive this.
  delta_sink(const chat_output& what, std::string entropy);

  void content(std::string_view text);
  void reasoning(std::string_view text);
  /// False, and nothing happens, if there is no such tool, or if there are too many calls.
  bool begin_call(std::string_view name);
  void arguments(std::string_view text);
  /// A part of the value of an argument, which is `first` of its call; with its key, which is cleared, where it begins.
  void member(std::string& key, bool& first, std::string_view json);
  void end_call() { in_call_ = false; }
  /// Ends the answer.
  void finish();

  const chat_output& what() const { return *what_; }
  bool in_call() const { return in_call_; }
  /// Whether a call was the last thing but white space, or goes on.
  bool behind_call() const { return behind_call_; }
  std::size_t calls() const { return calls_; }
  /// The function of the call that has begun.
  const offered_tool& called() const { return *called_; }

  output_deltas take();

private:
  void append(output_delta::kind kind, std::string_view text);

  const chat_output* what_;
  std::string entropy_;
  output_deltas deltas_;
  std::string space_; // of content, held back
  const offered_tool* called_ = nullptr;
  std::size_t calls_ = 0;
  bool in_call_ = false;
  bool behind_call_ = false; // without content since
};

} // namespace troupe
