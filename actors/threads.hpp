// Whether threads can be had, asked before CAF needs them: where it cannot start one, it leaves others running that it then
// waits for without end.
#pragma once

namespace troupe {

/// Starts so many threads at once and ends them, whose stacks are there for the next. Throws system_error where the system
/// does not let it.
void expect_threads(int count);

} // namespace troupe
