// Ends the program with one sentence, on any thread: for lack of memory or threads, or when a mapped file can no longer be
// read.
#pragma once

namespace troupe::cli {

// The first is short enough for std::string to hold without allocating.
inline constexpr const char* out_of_memory = "out of memory";
inline constexpr const char* no_thread = "no thread can be started: memory or the number of processes is at its limit";

/// Makes an unhandled lack of memory or threads end the program with a sentence and status 1 instead of an abort.
void explain_lack_of_memory();

/// Makes SIGBUS end the program with a sentence on stderr and exit status 1: models are mapped, and a file that is
/// truncated while in use is noticed in no other way. Installs a process-wide handler, so it is for programs only.
void explain_bus_errors();

} // namespace troupe::cli
