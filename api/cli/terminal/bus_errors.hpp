// What happens where a file that is mapped into memory can no longer be read.
#pragma once

namespace troupe::cli {

/// From here on that is told in one sentence on stderr, and ends the program with exit status 1: models are mapped, and
/// a file that is cut short while it is used has no other way to say so. For programs only: it is the whole process's.
void explain_bus_errors();

} // namespace troupe::cli
