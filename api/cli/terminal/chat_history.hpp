// The history of earlier chats, in a file that only its owner can read: one JSON string per line, oldest first. Main
// thread only; several programs may append to the file concurrently.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace troupe::cli {

/// troupe/chat-history in $XDG_STATE_HOME or ~/.local/state; empty without a home.
std::filesystem::path chat_history_file();

/// The latest turns of `file`, oldest first; none if there is no file. A long file is rewritten with only these. Throws
/// failure(bad_file).
std::vector<std::string> read_chat_history(const std::filesystem::path& file);

/// Appends a turn, unless it is long. Creates the file and its folder. Throws failure(bad_file).
void add_to_chat_history(const std::filesystem::path& file, const std::string& turn);

} // namespace troupe::cli
