// Checks that threads are available before a library starts them: CAF and asio::thread_pool wait for ever for the
// threads they have started when they cannot start all.
#pragma once

namespace troupe {

/// Starts `count` threads at once and ends them. Throws std::system_error if the system refuses one. The stacks stay
/// cached for the threads to come.
void expect_threads(int count);

} // namespace troupe
