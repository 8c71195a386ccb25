#include "runtime/support/threads.hpp"

#include <latch>
#include <thread>
#include <vector>

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

} // namespace troupe
