// Handles SIGBUS, which a memory-mapped file raises when it can no longer be read.
#pragma once

namespace troupe::cli {

/// Makes SIGBUS end the program with a sentence on stderr and exit status 1: models are mapped, and a file that is
/// truncated while in use is noticed in no other way. Installs a process-wide handler, so it is for programs only.
void explain_bus_errors();

} // namespace troupe::cli
