// What was typed in earlier chats, in a file that only its owner can read: a JSON string per line, oldest first. Main
// thread only; several programs may append to the file at once.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace troupe::cli {

/// troupe/chat-history in $XDG_STATE_HOME or ~/.local/state; empty where there is no home.
std::filesystem::path chat_history_file();

/// The latest turns of `file`, oldest first; none where there is no file. A file that has become long is written anew
/// with these alone. Throws failure(bad_file).
std::vector<std::string> read_chat_history(const std::filesystem::path& file);

/// Appends a turn, unless it is long. Makes the file, and the folder it is in. Throws failure(bad_file).
void add_to_chat_history(const std::filesystem::path& file, const std::string& turn);

} // namespace troupe::cli
