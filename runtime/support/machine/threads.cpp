#include "runtime/support/machine/threads.hpp"

#include <algorithm>
#include <latch>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace troupe {

namespace {

constexpr std::size_t longest_name = 15; // of Linux

void call_thread(std::string name) {
#if defined(__linux__)
  name.resize(std::min(name.size(), longest_name));
  static_cast<void>(pthread_setname_np(pthread_self(), name.c_str()));
#endif
}

} // namespace

void name_thread(std::string_view what) { call_thread("troupe." + std::string(what)); }

name_for_threads::name_for_threads(std::string_view what) {
#if defined(__linux__)
  char name[longest_name + 1] = {};
  static_cast<void>(pthread_getname_np(pthread_self(), name, sizeof name));
  own_ = name;
#endif
  name_thread(what);
}

name_for_threads::~name_for_threads() { call_thread(own_); }

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
