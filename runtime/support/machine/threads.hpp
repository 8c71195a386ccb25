// Threads that libraries start, their names and their priority. CAF hangs if it cannot start all its threads, so callers
// check before that it can.
#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Calls the calling thread "troupe.WHAT", or the first 15 bytes of that, for debuggers and `top -H`.
void name_thread(std::string_view what);

/// Within its scope the calling thread has such a name, which the threads inherit that a library starts meanwhile.
class name_for_threads {
public:
  explicit name_for_threads(std::string_view what);
  ~name_for_threads();
  name_for_threads(const name_for_threads&) = delete;
  name_for_threads& operator=(const name_for_threads&) = delete;

private:
  std::string own_;
};

/// Starts `count` threads at once and ends them. Throws std::system_error if the system refuses one. The stacks stay
/// cached for the threads to come.
void expect_threads(int count);

/// From now on the calling thread gets about a quarter of a core that another thread wants, too. For work that may be
/// slow and that nothing else should wait for. Where the system knows no such priority, nothing changes.
void give_way();

} // namespace troupe
