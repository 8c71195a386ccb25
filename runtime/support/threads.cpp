#include "runtime/support/threads.hpp"

#include <latch>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace troupe {

void expect_threads(int count) {
  std::latch all(1);
  std::vector<std::jthread> threads;
  struct release {
    std::latch& waiting;
    ~release() { waiting.count_down(); }
  } const at_end{all};
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&all] { all.wait(); });
}

void give_way() {
#if defined(__linux__) // where a thread has a priority of its own
  static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 5));
#endif
}

} // namespace troupe
