// Threads that libraries start, and their priority. CAF and asio::thread_pool wait for ever for the threads they have
// started when they cannot start all, so these are checked before.
#pragma once

namespace troupe {

/// Starts `count` threads at once and ends them. Throws std::system_error if the system refuses one. The stacks stay
/// cached for the threads to come.
void expect_threads(int count);

/// From now on the calling thread gets about a quarter of a core that another thread wants, too. For work that may be
/// slow and that nothing else should wait for. Where the system knows no such priority, nothing changes.
void give_way();

} // namespace troupe
