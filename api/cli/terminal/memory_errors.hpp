// Says so where there is no memory for more than a sentence, on whatever thread that is noticed.
#pragma once

namespace troupe::cli {

// Too short for std::string to need memory, the first.
inline constexpr const char* out_of_memory = "out of memory";
inline constexpr const char* no_thread = "no thread can be started: memory or the number of processes is at its limit";

/// From here on, where no memory or no thread is to be had and nobody handles it, the program ends with a sentence and
/// status 1 instead of an abort.
void explain_lack_of_memory();

} // namespace troupe::cli
