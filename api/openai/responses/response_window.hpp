// The messages of a response's chat as one list, and the newest of them if not all fit. Pure; runs on worker threads.
#pragma once

#include <functional>
#include <string>

namespace troupe {

/// A JSON list: `instructions` as a system message unless empty, then `conversation`, messages separated by commas.
/// System messages at its beginning become one, as many templates know one only.
std::string listed_messages(const std::string& instructions, const std::string& conversation);

/// `messages` without so many of the oldest that `fits` is true of what is left: from a message of the user's on if
/// possible, and never from a tool's. System messages stay. All of them if nothing helps.
std::string newest_messages(const std::string& messages, const std::function<bool(const std::string&)>& fits);

} // namespace troupe
