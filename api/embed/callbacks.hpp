// Calls the functions of the program that embeds the engine: its sinks and its progress function, which run on the
// engine's threads. Knows which threads are inside one, because waiting for the engine there would never end. Logs
// functions that block. Any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace troupe {

/// Whether this thread is within a function of the program, called or destroyed by an engine.
bool is_in_callback();

/// While it lives, this thread is.
class callback_mark {
public:
  callback_mark();
  ~callback_mark();
  callback_mark(const callback_mark&) = delete;
  callback_mark& operator=(const callback_mark&) = delete;
};

/// A function of the program. Marks the thread during calls and while what it owns is destroyed: it may own an engine.
template <class Argument>
class callback {
public:
  /// `blocked` is called on the same thread after a call that took longer than `most_time`.
  /// Leaves `f` as it was if there is no memory.
  explicit callback(std::function<void(Argument)>&& f, std::function<void(std::chrono::milliseconds)> blocked = {})
    : shared_(std::make_shared<owned>(std::move(f), std::move(blocked))) {}

  void operator()(Argument argument) const {
    using clock = std::chrono::steady_clock;
    const callback_mark mark;
    const auto begun = clock::now();
    shared_->function(std::forward<Argument>(argument));
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - begun);
    if (took <= most_time || !shared_->blocked)
      return;
    try {
      shared_->blocked(took);
    } catch (const std::bad_alloc&) { // the function has its argument: it must not be called again
    }
  }

  /// What a program may take without a word. Other requests wait meanwhile.
  static constexpr std::chrono::milliseconds most_time{100};

private:
  struct owned {
    owned(std::function<void(Argument)>&& f, std::function<void(std::chrono::milliseconds)> b)
      : function(std::move(f)), blocked(std::move(b)) {}
    ~owned() {
      const callback_mark mark;
      function = nullptr;
    }
    std::function<void(Argument)> function;
    std::function<void(std::chrono::milliseconds)> blocked;
  };
  std::shared_ptr<owned> shared_;
};

} // namespace troupe
