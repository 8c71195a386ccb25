// Turns the items of a response into messages of a chat. All items of one turn of the assistant (reasoning, text, calls
// of tools) become one message. Plain data in, JSON out.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace troupe {

class conversation {
public:
  /// Continues `earlier`, messages separated by commas.
  explicit conversation(std::string earlier = {}) : text_(std::move(earlier)) {}

  /// `content`: JSON, a string or a list of parts.
  void add_message(std::string_view role, std::string content);
  void add_reasoning(std::string_view text);
  void add_call(std::string_view id, std::string_view name, std::string_view arguments);
  void add_call_output(std::string_view id, std::string_view content);
  /// Whether an output can answer a call: one that was added, or is among the earlier messages.
  bool has_call(std::string_view id);

  /// All messages, separated by commas.
  std::string messages();

private:
  void append(const std::string& message);
  /// Ends the assistant's turn.
  void end_turn();

  std::string text_;
  // The assistant's turn under way:
  std::string content_, reasoning_; // content_: JSON, or empty
  std::vector<std::string> calls_;  // JSON

  std::unordered_set<std::string> call_ids_; // as JSON
  bool earlier_known_ = false;               // those of the earlier messages are among them
};

} // namespace troupe
