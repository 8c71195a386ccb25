// Which build of the program runs: two processes with the same one compute the same bits. Any thread.
#pragma once

#include <string>

namespace troupe {

/// The GNU build ids of the running program and of its own parts that are loaded by now (troupe-cuda.so), in hexadecimal:
/// the linker makes them from all that is in a file. Empty if the program was linked without one.
std::string build_id();

} // namespace troupe
