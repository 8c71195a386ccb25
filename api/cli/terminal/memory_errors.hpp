// Reports lack of memory or threads with one sentence, on any thread.
#pragma once

namespace troupe::cli {

// The first is short enough for std::string to hold without allocating.
inline constexpr const char* out_of_memory = "out of memory";
inline constexpr const char* no_thread = "no thread can be started: memory or the number of processes is at its limit";

/// Makes an unhandled lack of memory or threads end the program with a sentence and status 1 instead of an abort.
void explain_lack_of_memory();

} // namespace troupe::cli
