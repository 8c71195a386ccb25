// Bounds the work, memory and time of one rendering, and lets it be cancelled. Every function whose time depends on the
// size of a value charges a meter as it goes. Belongs to the thread of its rendering.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <stop_token>

namespace troupe::jinja {

/// An error of rendering. The interpreter adds line and column.
class fault : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// The rendering was cancelled.
class stopped : public fault {
public:
  stopped() : fault("the request was cancelled") {}
};

/// The budget of one rendering.
struct render_limits {
  std::size_t steps = std::size_t{256} << 20; // about a nanosecond each: bytes passed over, values visited
  std::size_t bytes = std::size_t{64} << 20;  // allocated in total, freed or not
  std::chrono::milliseconds time{2000};       // wall clock
  std::stop_token stop = {};
};

class meter {
public:
  explicit meter(const render_limits& limits)
    : steps_(limits.steps),
      bytes_(limits.bytes),
      stop_(limits.stop),
      end_(clock::now() + limits.time),
      look_at_(steps_) {}

  /// A meter without limits, for work outside of a rendering on texts of known size.
  static meter unlimited() {
    constexpr auto all = std::numeric_limits<std::size_t>::max();
    return meter({.steps = all, .bytes = all, .time = std::chrono::hours(1000)});
  }

  /// Charges steps. Throws fault when steps or time run out, stopped on cancellation.
  void spend(std::size_t steps) {
    if (steps > steps_)
      throw fault("the template does more work than any chat template should");
    steps_ -= steps;
    if (steps_ <= look_at_)
      look();
  }

  /// Charges memory, and the steps to fill it. Must precede allocations that can be large.
  void make(std::size_t bytes) {
    if (bytes > bytes_)
      throw fault("the template makes more text and values than any chat template should");
    bytes_ -= bytes;
    spend(bytes);
  }

  /// Long work proceeds in parts of this many bytes, so that spend() can end it in between.
  static constexpr std::size_t part = 16 << 10;

private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t between_looks = 64 << 10; // steps

  void look() {
    look_at_ = steps_ - std::min(steps_, between_looks);
    if (stop_.stop_requested())
      throw stopped();
    if (clock::now() > end_)
      throw fault("the template takes longer than any chat template should");
  }

  std::size_t steps_, bytes_;
  std::stop_token stop_;
  clock::time_point end_;
  std::size_t look_at_; // steps left at the next check of clock and stop token
};

} // namespace troupe::jinja
