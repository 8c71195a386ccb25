// A check that threads can be started, made before CAF needs them: if CAF fails to start one, it leaves others running
// and waits for them forever.
#pragma once

namespace troupe {

/// Starts `count` threads at once and ends them; the system keeps their stacks for the next ones. Throws system_error
/// if they cannot be had.
void expect_threads(int count);

} // namespace troupe
